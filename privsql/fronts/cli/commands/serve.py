"""`privsql serve`: its options, and checks before the server starts."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsql.errors import OperationalError, ProgrammingError
from privsql.fronts.cli.common import PATH, say

if TYPE_CHECKING:
    from privsql.fronts.pgwire.auth.login import Security

_SIZE = re.compile(r"[0-9]+(\.[0-9]+)? ?([KMGT]i?B)", re.IGNORECASE)
_COUNT = click.IntRange(min=1)

# Read by libraries when they are loaded.  Arrow's own allocator keeps 30 MB that were freed, and
# BLAS has threads and memory for each processor, while statements take turns on them anyway.
_LEAN = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def _address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    """``host:port``, with an IPv6 address in brackets; port 0 takes a free one."""
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    number = int(port) if port.isascii() and port.isdigit() else -1
    # An empty host would mean every address of the machine.
    if not colon or not host or not 0 <= number <= 65535 or (":" in host and not bracketed):
        raise click.BadParameter("give host:port, such as 127.0.0.1:5433 or [::1]:5433")
    return host, number


def _status_address(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """``host:port``, or a port of this machine's loopback."""
    if value is None:
        return None
    return _address(context, parameter, value if ":" in value else f"127.0.0.1:{value}")


def _amount(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Memory, such as 512MB."""
    if value is not None and not _SIZE.fullmatch(value):
        raise click.BadParameter("give an amount such as 512MB or 2GB")
    return value


def _seconds(name: str, default: float, about: str, *, least: float = 0) -> Callable[[Any], Any]:
    """An option that takes seconds."""
    kind = click.FloatRange(min=least)
    return click.option(name, type=kind, metavar="SECONDS", default=default, help=about)


@click.command()
@click.argument("releases", nargs=-1, required=True, type=PATH)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=_address,
    default="127.0.0.1:5433",
    help="Where clients connect; port 0 takes a free one.",
)
@click.option(
    "--users",
    type=PATH,
    help="Users who may log in, from `privsql user add`. Without it anyone on this machine may"
    " connect, and the difference check treats them as one user.",
)
@click.option("--tls-cert", type=PATH, help="A certificate (PEM), with its chain.")
@click.option("--tls-key", type=PATH, help="Its key, if it is not in the same file.")
@click.option("--require-tls", is_flag=True, help="Refuse connections without TLS.")
@click.option(
    "--insecure",
    count=True,
    show_default=False,
    help="Given twice: listen on an address that other machines can reach although passwords or"
    " TLS are missing.",
)
@click.option(
    "--history",
    type=PATH,
    help="Record of each user's answers; keep it. Default: history in the state folder.",
)
@click.option(
    "--mark",
    type=PATH,
    show_default="the history's name with .mark",
    help="The newest entry of each account, which shows an older history that was put back. On"
    " another disk it also shows that the whole state folder was.",
)
@click.option(
    "--log",
    "journal",
    type=PATH,
    help="The audit log, one line per statement and failed login. Default: audit.log in the state"
    " folder.",
)
@click.option(
    "--log-sync",
    is_flag=True,
    help="Sync the log to disk after each line: it survives a power failure, and answers are"
    " slower.",
)
@click.option(
    "--always",
    type=PATH,
    help="SQL statements that are never refused to anyone, such as those of dashboards. They are"
    " in every account from the start.",
)
@click.option(
    "--status",
    metavar="[HOST:]PORT",
    callback=_status_address,
    help="Serve /health and /metrics (Prometheus) over HTTP here, to anyone who can connect; a"
    " port alone is one of 127.0.0.1.",
)
@click.option(
    "--workers",
    type=_COUNT,
    default=4,
    help="Statements that run at the same time; up to as many more while one user holds them all.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=_amount,
    show_default="half of the machine's, divided among workers",
    help="Memory limit of each of a worker's two databases; its process may have both.",
)
@click.option("--threads", type=_COUNT, show_default="one per core", help="Threads of one scan.")
@_seconds("--statement-timeout", 300, "Time limit of a statement in seconds; 0: none.")
@click.option("--max-rows", type=_COUNT, default=1_000_000, help="Most rows of one answer.")
@click.option(
    "--max-connections", type=_COUNT, default=600, help="Most connections that have logged in."
)
@click.option(
    "--max-message",
    type=click.IntRange(min=10_000),
    default=16_000_000,
    help="Largest message of a client, in bytes.",
)
@_seconds("--auth-timeout", 10, "Time limit for logging in, in seconds.", least=0.1)
@_seconds("--idle-timeout", 3600, "Time limit of an idle connection in seconds; 0: none.")
@_seconds(
    "--stop-timeout", 10, "Seconds that running statements have to finish when the server stops."
)
@_seconds(
    "--look-every",
    1,
    "Seconds between checks for releases that were published again; 0: only at SIGHUP.",
)
def serve(releases: tuple[Path, ...], **given: Any) -> None:
    """Serve releases as a read-only PostgreSQL database.

    Clients see one database, privsql, with a table for each release; a release is a database by
    its own name, too.  A release file is only read: write permission is not needed.  The
    history and the log are in the state folder: $STATE_DIRECTORY (systemd's), or
    $XDG_STATE_HOME/privsql, or ~/.local/state/privsql.

    SIGTERM and SIGINT stop the server when running statements have finished, a second one at
    once.  SIGHUP checks for releases that were published again and reloads the certificate.

    \b
    Examples:
      privsql serve clinic.duckdb
      privsql serve clinic.duckdb --status 9090
      privsql serve clinic.duckdb --users users.json --listen 0.0.0.0:5433 \\
          --tls-cert server.crt --tls-key server.key --require-tls
    """
    for name, value in _LEAN.items():
        os.environ.setdefault(name, value)
    from privsql.fronts.cli import process as cli_running
    from privsql.fronts.pgwire.server import Allowance
    from privsql.policy.limits import Limits

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("privsql").setLevel(logging.INFO)
    host, port = given["listen"]
    security = _security(given)
    _reached(host, security, given["insecure"])
    workers, idle = given["workers"], given["idle_timeout"]
    more = {} if given["threads"] is None else {"threads": given["threads"]}
    state = cli_running.state_folder() if None in (given["history"], given["journal"]) else Path()
    plan = cli_running.Plan(
        releases=releases,
        host=host,
        port=port,
        security=security,
        secure_again=lambda: _security(given),
        history=given["history"] or state / "history",
        journal=given["journal"] or state / "audit.log",
        sync=given["log_sync"],
        always=() if given["always"] is None else _statements(given["always"]),
        allowance=Allowance(
            connections=given["max_connections"],
            message=given["max_message"],
            authentication=given["auth_timeout"],
            idle=idle or None,
            workers=workers,
            look=given["look_every"] or 1e9,
            patience=given["stop_timeout"],
        ),
        limits=Limits(
            seconds=given["statement_timeout"] or None,
            memory=given["memory"] or _memory(workers),
            rows=given["max_rows"],
            **more,
        ),
        mark=given["mark"],
        status=given["status"],
    )
    for line in _warnings(security, given["users"], given["status"]):
        say(f"WARNING: {line}", err=True)
    click.echo(f"history in {plan.history}, audit log in {plan.journal}", err=True)
    cli_running.run(plan, click.echo)


def _statements(path: Path) -> tuple[str, ...]:
    """The statements of a file."""
    from privsql.sql.parse.statement import parts

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise OperationalError(f"{path} cannot be read as SQL statements") from None
    return tuple(parts(text))


def _security(given: dict[str, Any]) -> Security:
    from privsql.fronts.cli.commands.user import existing
    from privsql.fronts.pgwire.server import secured

    if given["tls_key"] is not None and given["tls_cert"] is None:
        raise click.UsageError("--tls-key needs --tls-cert")
    users = None if given["users"] is None else existing(given["users"])
    return secured(
        users,
        tls_cert=given["tls_cert"],
        tls_key=given["tls_key"],
        require_tls=given["require_tls"],
    )


def _reached(host: str, security: Security, insecure: int) -> None:
    """Refuse unprotected access from other machines unless --insecure is given twice."""
    from privsql.fronts.pgwire.server import check_address

    try:
        check_address(host, security, insecure=insecure > 1)
    except ProgrammingError as problem:
        raise ProgrammingError(
            f"{problem.reason}, and passwords or TLS are missing",
            hint="give --users, --tls-cert, --tls-key and --require-tls, or listen on 127.0.0.1;"
            " to listen there anyway, give --insecure twice",
        ) from None


def _warnings(
    security: Security, path: Path | None, status: tuple[str, int] | None = None
) -> list[str]:
    found = []
    if status is not None and _away(status[0]):
        found.append(f"other machines can read the status at {status[0]}:{status[1]}")
    if security.users is None or path is None:
        found.append("there are no passwords (--users): anyone who can connect may use any name")
    else:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            found.append(f"other users of this machine can read {path}: run `chmod 600`")
        if not security.users.names():
            found.append(f"there is no user in {path}, so no one can log in yet")
    return found


def _away(host: str) -> bool:
    """Whether an address can be reached from other machines, or may be."""
    from privsql.fronts.pgwire.auth.login import Security
    from privsql.fronts.pgwire.server import check_address

    try:
        check_address(host, Security())
    except ProgrammingError:
        return True
    return False


def _memory(workers: int) -> str:
    """Half of the machine's memory over all databases, two a worker; 100 MB to 4 GB each."""
    from privsql.policy.limits import machine_memory

    return f"{min(4000, max(100, machine_memory() // 10**6 // (4 * workers)))}MB"
