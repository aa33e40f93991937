"""`privsql shell`: an interactive session, or a script from stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from privsql.fronts.cli.common import PATH, setting_options, table_option


@click.command()
@click.argument("release", type=PATH)
@setting_options
@table_option
@click.option(
    "--error-bars",
    is_flag=True,
    default=None,
    help="Add columns n_stderr, n_low, n_high, n_reliable after each estimate n. Errors are"
    " always shown.",
)
@click.option("--keep-going", is_flag=True, help="In a script: go on after a failure.")
def shell(release: Path, keep_going: bool, **given: Any) -> None:
    """Query a release interactively.

    Statements end with a semicolon and may take several lines; Tab completes, \\? lists the
    commands.  Ctrl-C cancels the statement that runs, Ctrl-D leaves.  The history is in
    $XDG_STATE_HOME/privsql, or ~/.local/state/privsql, readable by you only.

    Without a terminal, statements are read from stdin without prompts: answers go to stdout in
    full, errors to stderr.  The first failure ends the script with exit code 1; with
    --keep-going the rest is run as well, and the exit code is still 1.

    \b
    Examples:
      privsql shell clinic.duckdb
      privsql shell clinic.duckdb --confidence-level 0.99
      privsql shell clinic.duckdb < questions.sql
    """
    import privsql
    from privsql.fronts.shell.loop import open_shell

    settings = {name: value for name, value in given.items() if value is not None}
    sys.exit(open_shell(release, version=privsql.__version__, keep_going=keep_going, **settings))
