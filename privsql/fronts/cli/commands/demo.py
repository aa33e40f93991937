"""The demo on the command line."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click

from privsql.fronts.cli.common import PATH, Shown, console


@click.command()
@click.option(
    "--folder",
    type=PATH,
    default="privsql-demo",
    help="Folder for the demo's files; an earlier demo's folder is replaced.",
)
def demo(folder: Path) -> None:
    """Show the whole workflow on an invented clinic, in under a minute.

    It publishes a generated table, compares three estimates with the true values, shows a
    refused query, and leaves table, spec, release and a picture in a folder to experiment with.

    \b
    Examples:
      privsql demo
      privsql demo --folder clinic
    """
    from privsql.fronts.demo.screen import Screen
    from privsql.fronts.demo.story import tell

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # "±" must not end the story anywhere
    tell(folder, Screen(console()), Shown)
