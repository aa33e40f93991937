"""The command line: one thin coat over the library."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

import privsql
from privsql.errors import Error, OperationalError
from privsql.fronts.cli_serve import serve
from privsql.fronts.cli_user import user


class Commands(click.Group):
    """A group whose commands fail with our errors on stderr and exit code 1."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command; an error of the user's is a message, never a traceback."""
        try:
            return super().invoke(context)
        except Error as problem:
            _fail(str(problem))
        except KeyboardInterrupt:
            _fail("interrupted; nothing was changed")


def _fail(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(privsql.__version__, prog_name="privsql")
def main() -> None:
    """SQL over perturbed data: publish tables whose rows nobody can trust, ask what they say."""


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The release.")
@click.option("--source", help="Where raw rows are; overrides the spec's.")
@click.option("--force", is_flag=True, help="Overwrite an existing release.")
@click.option("--seed", type=int, help="UNSAFE, for tests: draws that anybody can repeat.")
@click.option("--accept-loss", is_flag=True, help="Publish although losses add up (see ledger).")
def publish(
    spec: Path, output: Path, source: str | None, force: bool, seed: int | None, accept_loss: bool
) -> None:
    """Publish a table as a release.

    \b
    Example:
      privsql publish clinic.toml -o clinic.duckdb
    """
    from privsql.publish.job import publish as run

    with Shown() as shown:
        report = run(
            source,
            output,
            spec=spec,
            force=force,
            seed=seed,
            accept_loss=accept_loss,
            progress=shown,
        )
    click.echo(str(report))


@main.command()
@click.argument("source")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here, not to stdout.")
def init(source: str, output: Path | None) -> None:
    """Write a starter spec for a source, with a guess at every role and domain.

    \b
    Example:
      privsql init patients.parquet -o clinic.toml
    """
    from privsql.publish.starter import starter

    text = starter(source)
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists():
        raise OperationalError(f"{output} exists already", hint="choose another name")
    output.write_text(text)
    click.echo(f"wrote {output}: every line marked GUESS wants your eyes")


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "-i",
    "--input",
    "rows",
    type=click.Path(path_type=Path),
    default="-",
    help="CSV or Parquet; stdin (CSV).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="-",
    help="CSV or Parquet; stdout (CSV).",
)
@click.option("--accept-loss", is_flag=True, help="Perturb although losses add up (see ledger).")
def perturb(spec: Path, rows: Path, output: Path, accept_loss: bool) -> None:
    """Perturb a client's own rows before they are sent: rows in, a batch out.

    Files are CSV, or Parquet if their names end in .parquet.

    \b
    Examples:
      privsql perturb clinic.toml < rows.csv > batch.csv
      privsql perturb clinic.toml -i rows.parquet -o batch.parquet
    """
    from privsql.publish.local import leaves
    from privsql.publish.local import perturb as run

    source, target = (None if str(path) == "-" else path for path in (rows, output))
    try:
        count, notes = run(spec, source, target, accept_loss=accept_loss)
    except KeyboardInterrupt:
        if not leaves(target):
            raise
        _fail(
            "interrupted; rows that were written have left, and the ledger of a key counts them;"
            " what came out is no whole batch, and no release will take it"
        )
    click.echo(f"perturbed {count:,} rows", err=True)
    for line in (*notes.facts, *(f"WARNING: {warning}" for warning in notes.warnings)):
        click.echo(line, err=True)


@main.command()
@click.argument("release", type=click.Path(path_type=Path))
@click.argument("batch", type=click.Path(path_type=Path))
def append(release: Path, batch: Path) -> None:
    """Add the rows of a batch that `perturb` made, CSV or Parquet, to a release.

    \b
    Example:
      privsql append clinic.duckdb batch.parquet
    """
    from privsql.publish.appending import append as run

    click.echo(f"added {run(release, batch):,} rows to {release}")


@main.group(cls=Commands)
def key() -> None:
    """Secret keys, which make publishing again repeat the same draws."""


@key.command("new")
@click.argument("path", type=click.Path(path_type=Path))
def key_new(path: Path) -> None:
    """Make a secret key.

    \b
    Example:
      privsql key new clinic.key
    """
    from privsql.publish.keys import new_key

    made = new_key(path)
    click.echo(f"wrote {path} (key {made.key_id}): keep it secret, and keep it")


main.add_command(serve)
main.add_command(user)


class Shown:
    """Progress: a bar with rows a second on a terminal, plain lines elsewhere."""

    # Seconds between plain lines.
    EVERY = 10.0

    def __init__(self) -> None:
        self._rows = 0
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Callable[[int], None]:
        """Begin to show."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("publishing {task.completed:,.0f} rows, {task.fields[speed]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("publishing", total=None, speed="")
        return self._more

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        if self._bar is not None:
            self._bar.stop()

    def _more(self, rows: int) -> None:
        self._rows += rows
        now = time.monotonic()
        speed = f"{self._rows / max(now - self._start, 1e-9):,.0f} rows/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._rows, speed=speed)
        elif now - self._last >= self.EVERY:
            self._last = now
            click.echo(f"{self._rows:,} rows, {speed}", err=True)


if __name__ == "__main__":
    main()
