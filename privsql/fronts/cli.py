"""The command line: a thin layer over the library.

Commands are imported when they are asked for, so that `privsql --version` is quick and
`privsql query` waits for nothing that only a server needs.
"""

from __future__ import annotations

import sys

import click

import privsql
from privsql.fronts.cli_common import HELP, Commands, Lazy, legible

# In the order in which a person meets them.
SECTIONS: dict[str, dict[str, str]] = {
    "See it work": {"demo": "cli_demo:demo"},
    "Publish": {
        "init": "cli_publish:init",
        "advise": "cli_advise:advise",
        "key": "cli_key:key",
        "publish": "cli_publish:publish",
        "audit": "cli_audit:audit",
        "perturb": "cli_publish:perturb",
        "append": "cli_publish:append",
        "convert": "cli_publish:convert",
    },
    "Ask": {
        "query": "cli_query:query",
        "explain": "cli_query:explain",
        "shell": "cli_shell:shell",
    },
    "Serve": {"serve": "cli_serve:serve", "user": "cli_user:user"},
    "Your shell": {"completion": "cli_completion:completion"},
}


class Main(Commands):
    """All commands, each known by name until it is wanted."""

    sections = {heading: tuple(names) for heading, names in SECTIONS.items()}  # noqa: RUF012


@click.group(
    cls=Main,
    context_settings=HELP,
    epilog="The exit code is 0, or 1 when something was refused, failed or interrupted, or 2 when"
    " the command was typed wrongly. Colour and progress are for terminals; NO_COLOR in the"
    " environment turns colour off.",
    commands=Lazy(
        {
            name: f"privsql.fronts.{place}"
            for names in SECTIONS.values()
            for name, place in names.items()
        }
    ),
)
@click.version_option(privsql.__version__, prog_name="privsql")
def main() -> None:
    """SQL over perturbed data: publish perturbed tables, and query them with error bars."""
    legible(sys.stdout)


if __name__ == "__main__":
    main()
