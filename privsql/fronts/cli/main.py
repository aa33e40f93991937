"""The command line: a thin layer over the library.

Commands are imported when they are asked for, so that `privsql --version` is quick and
`privsql query` waits for nothing that only a server needs.
"""

from __future__ import annotations

import sys

import click

import privsql
from privsql.fronts.cli.common import HELP, Commands, Lazy, legible

# In the order in which a person meets them.
SECTIONS: dict[str, dict[str, str]] = {
    "See it work": {"demo": "demo:demo"},
    "Publish": {
        "init": "publish:init",
        "advise": "advise:advise",
        "key": "key:key",
        "publish": "publish:publish",
        "audit": "audit:audit",
        "perturb": "publish:perturb",
        "append": "publish:append",
        "convert": "publish:convert",
    },
    "Ask": {
        "info": "info:info",
        "query": "query:query",
        "explain": "query:explain",
        "shell": "shell:shell",
    },
    "Serve": {"serve": "serve:serve", "user": "user:user", "history": "history:history"},
    "Your shell": {"completion": "completion:completion"},
}


class Main(Commands):
    """All commands, each known by name until it is wanted."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings."""
        width = max(map(len, self.commands))
        for heading, names in SECTIONS.items():
            # Names of one width, so that the texts of all headings stand under each other.
            found = [
                (f"{name:{width}}", self.commands[name].get_short_help_str(80)) for name in names
            ]
            with formatter.section(heading):
                formatter.write_dl(found)


@click.group(
    cls=Main,
    context_settings=HELP,
    epilog="The exit code is 0, or 1 when something was refused, failed or interrupted, or 2 when"
    " the command was typed wrongly. Colour and progress are for terminals; NO_COLOR in the"
    " environment turns colour off.",
    commands=Lazy(
        {
            name: f"privsql.fronts.cli.commands.{place}"
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
