"""Secret keys on the command line."""

from __future__ import annotations

from pathlib import Path

import click

from privsql.fronts.cli.common import PATH, Commands


@click.group(cls=Commands)
def key() -> None:
    """Secret keys, which make publishing again repeat the same draws.

    \b
    Example:
      privsql key new clinic.key
    """


@key.command("new")
@click.argument("path", type=PATH)
def key_new(path: Path) -> None:
    """Make a secret key.

    \b
    Example:
      privsql key new clinic.key
    """
    from privsql.publish.keys.key import new_key

    made = new_key(path)
    click.echo(f"wrote {path} (key {made.key_id}): keep it secret, and do not lose it")
