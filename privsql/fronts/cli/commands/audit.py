"""The audit on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from privsql.fronts.cli.common import PATH, say, terminal_width


@click.command()
@click.argument("release", type=PATH)
@click.option("--raw", help="The raw table: CSV, Parquet, or file.duckdb::table.")
@click.option("--spec", type=PATH, help="The spec, where it recodes columns of the raw table.")
@click.option("--html", type=PATH, help="Also write one page with plots here.")
@click.option("--tables", type=PATH, help="Also write the figures as a DuckDB file here.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("-o", "--output", type=PATH, help="Write the report here, not to stdout.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--rho", type=(float, float), help="rho1 and rho2 to check.  [default: 0.1 0.95]")
@click.option(
    "--lambda", "relative_error", type=float, help="Reconstruction privacy: lambda.  [default: 0.3]"
)
@click.option("--delta", type=float, help="Reconstruction privacy: delta.  [default: 0.3]")
def audit(
    release: Path,
    raw: str | None,
    spec: Path | None,
    html: Path | None,
    tables: Path | None,
    as_json: bool,
    output: Path | None,
    force: bool,
    rho: tuple[float, float] | None,
    relative_error: float | None,
    delta: float | None,
) -> None:
    """Report what a release protects, what it does not and for whom, and what to change.

    With --raw figures are those of the raw table, and the report is for its publisher only.
    lambda and delta default to the release's own where it has [protect.reconstruction].

    \b
    Examples:
      privsql audit clinic.duckdb
      privsql audit clinic.duckdb --raw patients.parquet --html audit.html --tables audit.duckdb
      privsql audit clinic.duckdb --json -o audit.json
    """
    from privsql.audit.job import audit as run
    from privsql.audit.report.text import WIDTH, report_text
    from privsql.errors import ProgrammingError
    from privsql.files import check_target, written

    wanted = [path for path in (html, tables, output) if path is not None]
    places = [path.absolute() for path in wanted]
    if len(set(places)) < len(places):
        raise ProgrammingError("two output files have the same name", hint="name different ones")
    for path in wanted:
        check_target(path, force=force)
    for used in [release, *([Path(raw.partition("::")[0])] if raw else [])]:
        if any(path.exists() and used.exists() and path.samefile(used) for path in wanted):
            raise ProgrammingError(
                f"{used} is being audited and would be overwritten", hint="name another file"
            )
    given = {"relative_error": relative_error, "probability": delta}
    if rho is not None:
        given |= {"rho1": rho[0], "rho2": rho[1]}
    report = run(
        release, raw, spec=spec, **{name: each for name, each in given.items() if each is not None}
    )
    width = min(WIDTH, terminal_width(sys.stdout) or WIDTH) if output is None else WIDTH
    text = report.to_json() if as_json else report_text(report, width)
    if html is not None:
        report.html(html, force=force)
    if tables is not None:
        report.write_tables(tables, force=force)
    if output is None:
        (click.echo if as_json else say)(text)
    else:
        with written(output, force=force) as stream:
            stream.write(f"{text}\n".encode())
    for path in wanted:
        click.echo(f"wrote {path}", err=True)
