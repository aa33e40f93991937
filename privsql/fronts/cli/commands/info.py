"""`privsql info`: what a release is."""

from __future__ import annotations

from pathlib import Path

import click

from privsql.fronts.cli.common import PATH, say, say_json


@click.command()
@click.argument("release", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def info(release: Path, as_json: bool) -> None:
    """Say what a release is: its columns, promises, policy and size.

    About ten lines: who made it and when, which columns are public, how each sensitive one was
    perturbed and what it can hold, what is promised and what is answered.  All of it is public.
    `privsql audit` says what it protects, in figures.

    \b
    Examples:
      privsql info clinic.duckdb
      privsql info clinic.duckdb --json
    """
    from privsql.fronts.shell.info import info_of
    from privsql.release.store import open_release

    found = info_of(open_release(release))
    if as_json:
        say_json(found.document())
    else:
        say(found.text())
