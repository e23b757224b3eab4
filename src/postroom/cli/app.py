"""The command `postroom` itself: what it is, and its commands in the order one uses them."""

from __future__ import annotations

from importlib import import_module

import click

from postroom import __version__
from postroom.cli.commands import Commands

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
"""In the order one uses them, each in the module of its name. `postroom put` need not load what `postroom bench` takes."""


class _Commands(Commands):
    """Loads a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        return load(cmd_name) if cmd_name in COMMANDS else None


def load(name: str) -> click.Command:
    """The command of this name."""
    defined = vars(import_module(f"postroom.cli.{name}")).values()
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
