"""The command `postroom` itself: what it is, and its commands in the order one uses them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from postroom import __version__

COMMANDS = (
    "demo",
    "init",
    "put",
    "relay",
    "consume",
    "status",
    "list",
    "explain",
    "requeue",
    "discard",
    "inbox",
    "doctor",
    "completion",
    "bench",
)
"""In the order one uses them. `postroom put` need not load what `postroom bench` takes."""
MODULES = {"requeue": "postroom.cli.repair", "discard": "postroom.cli.repair"}
"""Where those are that are not in the module of their name."""
EARLY = ("--store", "--config", "--table-prefix", "--schema")
"""Options that belong to every command that uses a store. People also type them before its name."""


class Commands(click.Group):
    """A group that is kind to whoever types: it knows misspelt names, and takes options before the command."""

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


class _Commands(Commands):
    """Loads a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        return load(cmd_name) if cmd_name in COMMANDS else None


def load(name: str) -> click.Command:
    """Return the command of this name."""
    defined = vars(import_module(MODULES.get(name, f"postroom.cli.{name}"))).values()
    return next(each for each in defined if isinstance(each, click.Command) and each.name == name)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="postroom %(version)s", help="Show the version and exit.")
@click.pass_context
def app(context: click.Context) -> None:
    """Postroom sends messages that are written in your own database transaction: your data and your message, one
    commit. This command makes the tables, writes messages and shows what became of them.

    \b
    A first session:
      $ export POSTROOM_STORE=sqlite:///shop.db
      $ postroom init
      $ postroom put order.paid --key order-7 --data '{"amount": 12}'
      $ postroom status
      $ postroom list

    The store is named by --store URL, behind the command or before it, by POSTROOM_STORE, or by store = "…" in
    postroom.toml. Exit codes: 0 done, 1 failed, 2 wrong use, 3 drained but something is dead.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
