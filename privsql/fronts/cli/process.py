"""A server as a process: files, signals and start-up messages.

    SIGTERM, SIGINT   stop: nobody new, answers under way may end; a second one stops at once
    SIGHUP            look for releases that were published again and read the certificate anew

The history and the log are the server's, not the release's: one server serves several
releases, a release may lie where nothing can be written, and two servers that share a history
share what each user was answered.  So they are in a state folder, as the system has one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from privsql.errors import Error, OperationalError
from privsql.fronts.pgwire.auth.login import DATABASE, Security
from privsql.fronts.pgwire.releases import House
from privsql.fronts.pgwire.server import Allowance, Server
from privsql.policy.history import History
from privsql.policy.journal import Journal
from privsql.policy.leverage import Admission, Atoms, Cells
from privsql.policy.limits import Limits
from privsql.release.manifest import Manifest
from privsql.release.store import open_release

EVERYBODY = ""  # no user has this name
T = TypeVar("T")
log = logging.getLogger("privsql.pgwire")


class OneAccount(History):
    """Without authentication all names count as one user: another name evades nothing."""

    def check(self, user: str, release: str, atoms: Atoms, cells: Cells) -> Admission:
        """Check against what everybody was answered."""
        return super().check(EVERYBODY, release, atoms, cells)


@dataclass(frozen=True)
class Plan:
    """What a server was told on the command line."""

    releases: tuple[Path, ...]
    host: str
    port: int
    security: Security
    secure_again: Callable[[], Security]
    history: Path
    journal: Path
    sync: bool
    allowance: Allowance
    limits: Limits


def state_folder() -> Path:
    """Where a server keeps its files: systemd's folder, XDG's, or the home's; made if missing."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(base) if base else Path.home() / ".local" / "state"
        folder = Path(given) if given else home / "privsql"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        raise OperationalError(
            "there is no folder for the history and the log", hint="give --history and --log"
        ) from None
    return folder


def run(plan: Plan, say: Callable[[str], None]) -> None:
    """Serve until a signal; ``say`` gets the banner when clients can connect."""
    for path in plan.releases:
        open_release(path)  # one that cannot be served leaves no history and no log behind
    kind = OneAccount if plan.security.users is None else History
    with _named(plan.history, kind) as history:
        journal = _named(plan.journal, lambda path: Journal(path, sync=plan.sync))
        house = House(
            plan.releases,
            history=history,
            journal=journal,
            limits=plan.limits,
            sessions=plan.allowance.workers,
            quick=not plan.sync,
        )
        asyncio.run(_served(plan, house, say))


def _named(path: Path, make: Callable[[Path], T]) -> T:
    """Open one of the server's files; its operator, unlike its clients, is told which."""
    try:
        return make(path)
    except Error as problem:
        raise type(problem)(f"{path}: {problem.reason}", hint=problem.hint) from None


async def _served(plan: Plan, house: House, say: Callable[[str], None]) -> None:
    server = Server(house, plan.security, plan.allowance)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    wanted = asyncio.Event()

    def stop(name: str) -> None:
        log.info("%s: the server stops when running statements have finished", name)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)  # log and history are safe at any moment
        over.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop, each.name)
    loop.add_signal_handler(signal.SIGHUP, wanted.set)
    try:
        addresses = await server.start(plan.host, plan.port)
        say(banner(addresses, [each.manifest for each in house.versions().values()], plan.security))
        reloading = asyncio.create_task(_reloaded(plan, house, server, wanted))
        await over.wait()
        reloading.cancel()
    finally:
        await server.stop()
    log.info("the server has stopped")


async def _reloaded(plan: Plan, house: House, server: Server, wanted: asyncio.Event) -> None:
    """At each SIGHUP; what cannot be read leaves everything as it was."""
    while True:
        await wanted.wait()
        wanted.clear()
        try:
            found = await asyncio.to_thread(house.refresh)
            server.security = await asyncio.to_thread(plan.secure_again)
        except Error as problem:
            log.error("SIGHUP: %s; the server continues unchanged", problem.reason)
        else:
            log.info("SIGHUP: %s", f"now served: {', '.join(found)}" if found else "no changes")


def banner(addresses: list[tuple[str, int]], manifests: list[Manifest], security: Security) -> str:
    """One line: where, which databases, under which policies, and who is let in."""
    where = ", ".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses
    )
    served = ", ".join(f"{each.table} ({_policy(each)})" for each in manifests)
    tls = "TLS required" if security.require_tls else "TLS offered" if security.tls else "no TLS"
    login = "SCRAM-SHA-256" if security.users is not None else "no passwords"
    return f"privsql listens on {where}: database {DATABASE} with {served}; {login}, {tls}"


def _policy(manifest: Manifest) -> str:
    policy = manifest.policy
    return (
        f"personal_groups {policy.personal_groups}, min_rows {policy.min_rows},"
        f" differences {policy.differences}, rows {policy.rows}"
    )
