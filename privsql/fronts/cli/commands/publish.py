"""Commands of a publisher and of a client that perturbs its own rows."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import click

from privsql.errors import how_many
from privsql.files import check_target, written
from privsql.fronts.cli.common import (
    PATH,
    Shown,
    fail,
    force_option,
    output_option,
    release_option,
    say,
)

show_values_option = click.option(
    "--show-values",
    is_flag=True,
    help="Show some values that do not fit the spec: raw data, on your own terminal.",
)


@click.command()
@click.argument("spec", type=PATH)
@release_option("The release: a file, or a folder of Parquet (clinic/).", required=True)
@click.option(
    "--source",
    multiple=True,
    metavar="FILE",
    help="Source of the raw rows, overrides the spec's; give it again for more files; - is stdin.",
)
@force_option
@click.option("--seed", type=int, help="UNSAFE, for tests: draws that anyone can reproduce.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Publish although the key's ledger shows that privacy losses add up.",
)
@show_values_option
@click.option(
    "--ignore-disk",
    is_flag=True,
    help="Try although the disk seems too small; nothing changes if it is.",
)
def publish(
    spec: Path,
    output: str,
    source: tuple[str, ...],
    force: bool,
    seed: int | None,
    accept_loss: bool,
    show_values: bool,
    ignore_disk: bool,
) -> None:
    """Publish a table as a release.

    Sources are CSV (also .csv.gz and .csv.zst), Parquet and DuckDB files (file.duckdb::table).
    Every column is checked against the spec before anything is written.

    \b
    Examples:
      privsql publish clinic.toml -o clinic.duckdb
      privsql publish clinic.toml -o clinic/
      privsql publish clinic.toml -o clinic.duckdb --source 2024.csv.gz --source 2025.csv.gz
      zcat rows.csv.gz | privsql publish clinic.toml -o clinic.duckdb --source -
    """
    from privsql.publish.job import publish as run

    with Shown() as shown:
        report = run(
            source or None,
            output,
            spec=spec,
            force=force,
            seed=seed,
            accept_loss=accept_loss,
            show_values=show_values,
            ignore_disk=ignore_disk,
            progress=shown,
            say=partial(say, err=True),
        )
    say(str(report))


@click.command()
@click.argument("source")
@output_option("Write the spec to a file; - is stdout, the default.")
@force_option
def init(source: str, output: Path | None, force: bool) -> None:
    """Write a starter spec for a source: a guess at every role and domain, on the safe side.

    What identifies is dropped, what others know is made coarse, what looks sensitive is perturbed.
    Where no rule knows, the role is "decide", and `publish` waits for your decision.

    \b
    Example:
      privsql init patients.parquet -o clinic.toml
    """
    from privsql.publish.starter import drafted

    if output is not None:
        check_target(output, force=force, sources=(Path(source),), device=True)
    draft = drafted(source, output and output.parent, Steps())
    if output is None:
        click.echo(draft.text, nl=False)
    else:
        with written(output, force=force) as stream:
            stream.write(draft.text.encode())
        click.echo(f"wrote {output}: check every line marked GUESS")
    for line in draft.summary():
        say(f"  {line}", err=output is None)


class Steps:
    """Progress of `init`: what is being read, on a terminal at once, elsewhere if it takes long."""

    # Seconds without a word where nobody watches.
    PATIENCE = 10.0

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say what begins."""
        seconds = time.monotonic() - self._start
        if sys.stderr.isatty() or seconds >= self.PATIENCE:
            click.echo(f"{seconds:5.0f} s  {text}", err=True)


@click.command()
@click.argument("spec", type=PATH)
@click.option(
    "-i",
    "--input",
    "rows",
    type=PATH,
    metavar="FILE",
    default="-",
    show_default=False,
    help="Raw rows, any source that publish reads; - is stdin, the default.",
)
@output_option("The batch, CSV or Parquet; - is stdout (CSV), the default.")
@force_option
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Perturb although the key's ledger shows that privacy losses add up.",
)
@click.option(
    "--accept-public",
    multiple=True,
    metavar="NAME",
    help="Let this public column leave as it is; give it again for more, or all.",
)
@click.option(
    "--accept-epsilon",
    is_flag=True,
    help="Send columns whose epsilon is above 5, whatever the spec says.",
)
@show_values_option
def perturb(
    spec: Path,
    rows: Path,
    output: Path | None,
    force: bool,
    accept_loss: bool,
    accept_public: tuple[str, ...],
    accept_epsilon: bool,
    show_values: bool,
) -> None:
    """Perturb a client's own rows before they are sent: rows in, a batch out.

    Before a row is written, stderr shows which columns leave as they are and what each other
    one loses (epsilon). You agree to it here, not in the spec, which is somebody else's: each
    public column is named with --accept-public, and an epsilon above 5 needs --accept-epsilon.

    Rows are read as `publish` reads them. Those of a file are all checked before the first is
    written. CSV from a pipe is checked and written piece by piece, about a second after its rows
    came, so the pipe may stay open: a row that does not fit stops the stream before anything of its
    piece is written, but rows of earlier pieces have left then. Types of columns follow from the
    first piece. The batch is CSV, or Parquet if its name ends in .parquet.

    \b
    Examples:
      privsql perturb clinic.toml --accept-public city < rows.csv > batch.csv
      privsql perturb clinic.toml --accept-public all -i rows.parquet -o batch.parquet
      zcat rows.csv.gz | privsql perturb clinic.toml --accept-public city > batch.csv
    """
    from privsql.publish.append.local import leaves
    from privsql.publish.append.local import perturb as run

    source = None if rows == Path("-") else rows
    if output is not None:  # raw rows may exist nowhere else
        sources = (spec, *([source] if source else []))
        check_target(output, force=force, sources=sources, device=True)
    try:
        count, notes = run(
            spec,
            source,
            output,
            accept_loss=accept_loss,
            accept_public=accept_public,
            accept_epsilon=accept_epsilon,
            show_values=show_values,
            say=partial(say, err=True),
        )
    except KeyboardInterrupt:
        if not leaves(output):
            raise
        fail(
            "interrupted; rows already written count in the key's ledger; the output is not a"
            " complete batch, and no release will accept it"
        )
    click.echo(f"perturbed {how_many(count, 'row')}", err=True)
    for line in (*notes.facts, *(f"WARNING: {warning}" for warning in notes.warnings)):
        say(line, err=True)


@click.command()
@click.argument("release", type=PATH)
@click.argument("batch", type=PATH)
def append(release: Path, batch: Path) -> None:
    """Add the rows of a batch that `perturb` made, CSV or Parquet, to a release.

    \b
    Example:
      privsql append clinic.duckdb batch.parquet
    """
    from privsql.publish.append.append import append as run
    from privsql.publish.report import Notes

    notes = Notes()
    count = run(release, batch, notes)
    click.echo(f"added {how_many(count, 'row')} to {release}")
    for fact in notes.facts:
        say(f"  {fact}")


@click.command()
@click.argument("file", type=PATH, metavar="RELEASE")
@release_option(
    "The upgraded file, in place of the old one by default; or the release in another shape: a"
    " folder of Parquet (clinic/), or a file."
)
@force_option
def convert(file: Path, output: str | None, force: bool) -> None:
    """Upgrade a release of an earlier format, or change its shape; nothing is drawn anew.

    Published rows stay as they are, so this costs no privacy. A key, a ledger, a history of answers
    and a users file are upgraded in the same way, each by its own name. Without -o the old
    file is kept as FILE.format1 (its format's number).

    \b
    Examples:
      privsql convert clinic.duckdb
      privsql convert clinic.duckdb -o upgraded.duckdb
      privsql convert clinic.duckdb -o clinic/
      privsql convert clinic/ -o clinic.duckdb
      privsql convert clinic.key.ledger
    """
    from privsql.fronts.cli.conversion import convert as run

    click.echo(str(run(file, output, force=force)))
