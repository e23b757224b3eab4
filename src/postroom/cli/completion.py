"""`postroom completion`: a script by which a shell completes the commands and options of `postroom`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from postroom.cli.output import write

VARIABLE = "_POSTROOM_COMPLETE"
"""Set by that script when it asks for words."""
SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print a script that completes commands in your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for your shell: with it, the Tab key completes commands and options. Add what it prints to ~/.bashrc or
    ~/.zshrc; for fish, to ~/.config/fish/completions/postroom.fish.

    \b
    Examples:
      postroom completion bash
      postroom completion fish > postroom.fish
    """
    from postroom.cli.app import app

    script = get_completion_class(shell)
    if script is None:  # click knows these three
        raise click.ClickException(f"There is no completion for {shell}.")
    write(script(app, {}, "postroom", VARIABLE).source())
