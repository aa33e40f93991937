"""`privsql query` and `privsql explain`: SQL in, answers out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsql.errors import ProgrammingError, printable
from privsql.files import check_target
from privsql.fronts.cli import formats as cli_formats
from privsql.fronts.cli import output as cli_output
from privsql.fronts.cli import statements as cli_sql
from privsql.fronts.cli.common import (
    PATH,
    force_option,
    output_option,
    say,
    setting_options,
    table_option,
    together,
)

if TYPE_CHECKING:
    from privsql.answer.outcome import Outcome
    from privsql.fronts.dbapi.connection import Connection

EXPLANATIONS = ("text", "csv", "json", "parquet")
_SETTINGS = ("estimator", "confidence_level", "error_bars", "simultaneous")


class Asking(click.Command):
    """A command whose SQL may begin with a comment, which no option does: ``-- by city``."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Move a comment away from the place where an option begins."""
        moved = [f" {word}" if re.match(r"--\s", word) else word for word in arguments]
        return super().parse_args(context, moved)


def _options(formats: tuple[str, ...]) -> Callable[[Any], Any]:
    """What both commands take, in the order of their help."""
    return together(
        click.argument("release", type=PATH),
        click.argument("sql", required=False),
        click.option(
            "-f", "--file", type=PATH, metavar="FILE", help="Read SQL from a file; - is stdin."
        ),
        setting_options,
        table_option,
        click.option(
            "--format",
            "form",
            type=click.Choice(formats),
            show_default=f"from the output's extension, or {formats[0]}",
            help="Output format.",
        ),
        output_option("Write to a file, atomically; - is stdout."),
        force_option,
    )


@click.command(cls=Asking)
@_options(cli_formats.FORMATS)
@click.option(
    "--error-bars",
    is_flag=True,
    default=None,
    help="Add columns n_stderr, n_low, n_high, n_reliable after each estimate n. Tables always"
    " show errors.",
)
@click.option(
    "--safe-csv",
    is_flag=True,
    help="In CSV: put an apostrophe before text that a spreadsheet would take for a formula (it"
    " begins with = + - @, a tab or a line break).",
)
def query(release: Path, sql: str | None, file: Path | None, **given: Any) -> None:
    """Query a release: SQL from the argument, a file or stdin.

    Several statements are separated by `;` and run in order; SET in them changes what the options
    set.  A table shows each estimate as value ± half of its interval.  On a terminal it is cut to
    40 rows and the columns that fit; a pipe or a file gets all of it, and several answers below
    each other.

    The other formats hold one answer with all digits.  csv: NULL is empty, an empty text is "".
    json: an array of objects, one per row; non-finite numbers are "NaN", "Infinity", "-Infinity".
    parquet: to a file or a pipe.  Dates are ISO 8601.  Control characters of the data are
    escaped on a terminal; in files and pipes csv has them as they are.

    Notices and errors go to stderr.

    \b
    Examples:
      privsql query clinic.duckdb "SELECT illness, count(*) FROM patients GROUP BY illness"
      privsql query clinic.duckdb -f report.sql --error-bars -o report.csv
      privsql query clinic.duckdb -f report.sql --safe-csv -o for-a-spreadsheet.csv
      echo "SELECT avg(age) FROM patients" | privsql query clinic.duckdb --format json
      privsql query clinic.duckdb --table wards=wards.csv "SELECT city, count(*) FROM patients
          JOIN wards USING (ward) GROUP BY city"
    """

    def answered(con: Connection, part: cli_sql.Part) -> Outcome | str:
        if part.kind == "explain" and form == "table":
            return con.explain(part.text)  # in full where it says VERBOSE
        return con.sql(part.text).outcome

    form = _form(given["form"], given["output"], cli_formats.FORMATS)
    if given["safe_csv"] and form != "csv":
        raise click.UsageError("--safe-csv is for CSV: give --format csv, or -o FILE.csv.")
    _run(release, sql, file, form, given, answered)


@click.command(cls=Asking)
@_options(EXPLANATIONS)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also show cells and channels, and the SQL of the scan and the reconstruction.",
)
def explain(release: Path, sql: str | None, file: Path | None, verbose: bool, **given: Any) -> None:
    """Show how a query would be answered; no sensitive value is read.

    About ten lines: what is estimated and how, the perturbed columns, the condition number, the
    expected width of the intervals, the form of the scan, and what the policy of the release
    will say.  --verbose shows all of EXPLAIN RECONSTRUCTION.  The formats other than text always
    do, one row for each: block, item, name, value.

    \b
    Examples:
      privsql explain clinic.duckdb "SELECT count(*) FROM patients WHERE illness = 'flu'"
      privsql explain clinic.duckdb -f report.sql --verbose
    """

    def answered(con: Connection, part: cli_sql.Part) -> Outcome | str:
        if not part.answers:
            return con.sql(part.text).outcome
        if form == "text":
            return con.explain(part.text, verbose=verbose)
        ours = "" if part.kind == "explain" else "EXPLAIN RECONSTRUCTION "
        return con.sql(ours + part.text).outcome

    form = _form(given["form"], given["output"], EXPLANATIONS)
    _run(release, sql, file, form, given, answered)


def _form(asked: str | None, output: Path | None, formats: tuple[str, ...]) -> str:
    """The format given, or that of the output's extension, or the one for people."""
    if asked is not None:
        return asked
    ending = "" if output is None else output.suffix.removeprefix(".").lower()
    return ending if ending in formats else formats[0]


def _run(
    release: Path,
    sql: str | None,
    file: Path | None,
    form: str,
    given: dict[str, Any],
    answered: Callable[[Connection, cli_sql.Part], Outcome | str],
) -> None:
    """Ask every statement and write what comes; everything that can be refused is, first."""
    output: Path | None = given["output"]
    if form == "parquet" and output is None and cli_output.is_terminal(sys.stdout):
        raise click.UsageError("Parquet cannot be written to a terminal: give -o FILE, or a pipe.")
    text = cli_sql.given(sql, file)
    if output is not None:
        sources = (release,) if file is None else (release, file)
        check_target(output, force=given["force"], sources=sources, device=True)
    parts = cli_sql.split(text)
    _check_number(parts, form)
    settings = {name: given[name] for name in _SETTINGS if given.get(name) is not None}
    found = _answers(release, text, parts, {"tables": given["tables"], **settings}, answered)
    if form not in ("table", "text"):
        (outcome,) = found
        if isinstance(outcome, str):  # only the formats for people have explanations
            raise AssertionError(form)
        with cli_output.destination(output, force=given["force"]) as stream:
            if form == "csv":
                cli_formats.write_csv(outcome, stream, safe=given.get("safe_csv", False))
            else:
                cli_formats.WRITERS[form](outcome, stream)
    elif output is None:
        for i, one in enumerate(found):
            click.echo("\n" * (i > 0), nl=False)
            cli_formats.show(one)
    else:
        whole = list(found)  # before a file is begun: who is killed while asking leaves none
        with cli_output.destination(output, force=given["force"]) as stream:
            for i, one in enumerate(whole):
                stream.write(b"\n" * (i > 0))
                cli_formats.write_table(one, stream)


def _answers(
    release: Path,
    text: str,
    parts: list[cli_sql.Part],
    settings: dict[str, Any],
    answered: Callable[[Connection, cli_sql.Part], Outcome | str],
) -> Iterator[Outcome | str]:
    """Run the statements in order; notices are said as they come."""
    from privsql.fronts.dbapi.connection import connect

    with connect(release, **settings) as con:
        for part in parts:
            with cli_sql.placed(text, part):
                found = answered(con, part)
            for notice in () if isinstance(found, str) else found.notices:
                say(printable(str(notice)), err=True)
            if part.answers:
                yield found


def _check_number(parts: list[cli_sql.Part], form: str) -> None:
    answers = sum(part.answers for part in parts)
    if form not in ("table", "text") and answers != 1:
        raise ProgrammingError(
            f"{form} holds one answer, and these statements return {answers or 'none'}",
            hint="run one query at a time, with its SET statements before it",
        )
