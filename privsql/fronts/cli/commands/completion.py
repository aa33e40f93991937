"""`privsql completion`: shell completion of commands, options and file names."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and file names in your shell.

    To enable it in every new shell, add a line to the shell's start file, or install the script:

    \b
      bash   ~/.bashrc:  eval "$(privsql completion bash)"
      zsh    ~/.zshrc:   eval "$(privsql completion zsh)"      (after compinit)
      fish   privsql completion fish > ~/.config/fish/completions/privsql.fish

    \b
    Example:
      eval "$(privsql completion bash)"
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = context.find_root()
    # The name that people type: a script for `python -m` would complete python.
    click.echo(found(root.command, {}, "privsql", "_PRIVSQL_COMPLETE").source())
