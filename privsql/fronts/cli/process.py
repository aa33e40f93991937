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
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from privsql.engines.processes.footprint import lean, without_pandas
from privsql.errors import Error, OperationalError, printable
from privsql.fronts.pgwire.auth.login import DATABASE, Security
from privsql.fronts.pgwire.releases import House, opened
from privsql.fronts.pgwire.scheduler import at_once
from privsql.fronts.pgwire.server import Allowance, Server
from privsql.fronts.pgwire.status.endpoint import Endpoint
from privsql.fronts.pgwire.status.pages import Status, unchanged, writable
from privsql.policy.copies.mark import Keeper, check_present
from privsql.policy.history import History
from privsql.policy.journal import Journal
from privsql.policy.limits import Limits
from privsql.release.manifest import Manifest
from privsql.release.tables import read_files

EVERYBODY = ""  # no user has this name
MARK = 1.0  # seconds between two looks whether the history has grown
T = TypeVar("T")
log = logging.getLogger("privsql.pgwire")


class OneAccount(History):
    """Without authentication all names count as one user: another name evades nothing."""

    def account_of(self, user: str) -> str:
        """The account of everybody."""
        return EVERYBODY


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
    always: tuple[str, ...]
    allowance: Allowance
    limits: Limits
    tables: Mapping[str, Path] = field(default_factory=dict)
    mark: Path | None = None  # beside the history
    status: tuple[str, int] | None = None


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
    without_pandas()
    lean()
    for path in plan.releases:
        opened(path)  # one that cannot be served leaves no history and no log behind
    kind = OneAccount if plan.security.users is None else History
    check_present(plan.history, plan.mark)
    with _named(plan.history, kind) as history, Keeper(plan.history, plan.mark) as keeper:
        _tell_closed(keeper)
        journal = _named(plan.journal, lambda path: Journal(path, sync=plan.sync))
        house = House(
            plan.releases,
            history=history,
            journal=journal,
            limits=plan.limits,
            sessions=at_once(plan.allowance.workers),
            quick=not plan.sync,
            always=plan.always,
            tables=read_files(plan.tables),
            admit=lambda user: keeper.check(EVERYBODY if kind is OneAccount else user),
        )
        asyncio.run(_served(plan, house, keeper, say))


def _named(path: Path, make: Callable[[Path], T]) -> T:
    """Open one of the server's files; its operator, unlike its clients, is told which."""
    try:
        return make(path)
    except Error as problem:
        raise type(problem)(f"{path}: {problem.reason}", hint=problem.hint) from None


async def _served(plan: Plan, house: House, keeper: Keeper, say: Callable[[str], None]) -> None:
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
    # The status outlives the server by a moment: it says that the server stops.
    async with _status(plan, house, keeper, server) as shown:
        try:
            addresses = await server.start(plan.host, plan.port)
            manifests = [each.manifest for each in house.versions().values()]
            say(banner(addresses, manifests, plan.security) + shown)
            beside = [
                asyncio.create_task(_reloaded(plan, house, server, wanted)),
                asyncio.create_task(_marked(keeper)),
            ]
            await over.wait()
            for task in beside:
                task.cancel()
        finally:
            await server.stop()
    log.info("the server has stopped")


@asynccontextmanager
async def _status(plan: Plan, house: House, keeper: Keeper, server: Server) -> AsyncIterator[str]:
    """Health and metrics, if they are wanted; what the banner says of them."""
    if plan.status is None:
        yield ""
        return
    status = Status(
        server.metrics,
        server.connections,
        {
            "listening": lambda: server.listening,
            "history": unchanged(plan.history),
            "mark": lambda: keeper.healthy,
            "log": writable(plan.journal),
        },
        history=plan.history,
        workers=plan.allowance.workers,
        releases=lambda: len(house.versions()),
    )
    endpoint = Endpoint(status.pages())
    try:
        yield f"; status on {_where(await endpoint.start(*plan.status))}"
    finally:
        await endpoint.stop()


async def _marked(keeper: Keeper) -> None:
    """Raise the mark of the history every second."""
    while True:
        await asyncio.sleep(MARK)
        try:
            await asyncio.to_thread(keeper.advance)
        except Error as problem:
            log.error("the mark of the history cannot be raised: %s", problem.reason)


def _tell_closed(keeper: Keeper) -> None:
    restored = keeper.restored
    if restored is None:
        return
    names = ", ".join(map(str, keeper.closed))
    which = "all accounts that were not accepted" if restored.unknown else names
    log.warning("the history was restored at %s; closed are: %s", restored.time, which)


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
    served = ", ".join(f"{printable(each.table)} ({_policy(each)})" for each in manifests)
    tls = "TLS required" if security.require_tls else "TLS offered" if security.tls else "no TLS"
    login = "SCRAM-SHA-256" if security.users is not None else "no passwords"
    return (
        f"privsql listens on {_where(addresses)}: database {DATABASE} with {served}; {login}, {tls}"
    )


def _where(addresses: list[tuple[str, int]]) -> str:
    return ", ".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses
    )


def _policy(manifest: Manifest) -> str:
    policy = manifest.policy
    return (
        f"personal_groups {policy.personal_groups}, min_rows {policy.min_rows},"
        f" differences {policy.differences}, rows {policy.rows}"
    )
