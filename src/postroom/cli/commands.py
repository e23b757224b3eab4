"""A group of commands that is kind to whoever types: it knows misspelt names, and takes options before the command."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import click

EARLY = ("--store", "--config", "--table-prefix", "--schema")
"""Options that belong to every command that uses a store. People also type them before its name."""


class Commands(click.Group):
    """A group of commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with options of the command that stand before its name moved behind it."""
        return super().parse_args(ctx, moved_behind(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Raises a usage error that names the nearest one there is."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if close := get_close_matches(args[0], self.list_commands(ctx), n=1):
                raise click.UsageError(f"There is no command {args[0]!r}; did you mean {close[0]}?", ctx) from None
            raise


def moved_behind(args: Sequence[str]) -> list[str]:
    """Return the arguments with the early options behind the first word, which is the command.

    >>> moved_behind(["--store", "sqlite:///shop.db", "list", "--json"])
    ['list', '--store', 'sqlite:///shop.db', '--json']
    """
    count = 0
    while count < len(args) and args[count].partition("=")[0] in EARLY:
        count += 1 if "=" in args[count] else 2
    return [*args[count : count + 1], *args[:count], *args[count + 1 :]]
