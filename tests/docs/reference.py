"""docs/cli.md: every command and option, from the program itself.

On a change: ``python -m tests.docs.reference > docs/cli.md``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from privsql.fronts.cli.common import HELP
from privsql.fronts.cli.main import main

HEAD = """# The command line

Every command and option, written from the program (`python -m tests.docs.reference > docs/cli.md`).
Exit codes: 0 fine, 1 refused or failed, 2 wrong usage. Results go to stdout; errors, notices and
progress to stderr. Colour and progress bars appear on a terminal only, and never when `NO_COLOR` is
set.
"""


def commands(
    group: click.Group = main, before: str = "privsql"
) -> Iterator[tuple[str, click.Command]]:
    """Each command with its whole name, groups opened."""
    context = click.Context(group, info_name=before, **HELP)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from commands(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def options(command: click.Command) -> list[click.Option]:
    """Those that people may give."""
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for name, command in commands():
        # Click keeps the help option that it makes first, so it must be the program's own.
        context = click.Context(command, info_name=name, **HELP)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f"## {name}", "", "```text", f"{name} {usage}", "```", ""]
        lines += [_text(command.help or ""), ""]
        if options(command):
            lines += ["| option | what it does |", "|---|---|"]
            lines += [f"| {_names(one)} | {_help(one)} |" for one in options(command)]
            lines.append("")
    return "\n".join(lines)


def _text(text: str) -> str:
    """Click's help as Markdown: paragraphs that it keeps as they are become blocks."""
    parts = []
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith("\b\n"):
            title, *rest = part.removeprefix("\b\n").split("\n")
            body = "\n".join(line.removeprefix("  ") for line in rest)
            parts.append(f"{title}\n\n```text\n{body}\n```")
        else:
            parts.append(" ".join(part.split()))
    return "\n\n".join(parts)


def _names(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag else f" `{option.make_metavar(click.Context(main, **HELP))}`"
    return (names + kind).replace("|", "\\|")


def _help(option: click.Option) -> str:
    assert option.help, f"{option.name} has no help"
    default = option.get_help_extra(click.Context(main, **HELP)).get("default")
    known = default is None or "default" in option.help.lower()
    return (option.help + ("" if known else f" Default: {default}.")).replace("|", "\\|")


if __name__ == "__main__":
    print(page())
