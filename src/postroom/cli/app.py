"""The command `postroom` itself: what it is, and its commands in the order one uses them."""

from __future__ import annotations

import click

from postroom import __version__
from postroom.cli.bench import bench
from postroom.cli.consume import consume
from postroom.cli.demo import demo
from postroom.cli.discard import discard
from postroom.cli.doctor import doctor
from postroom.cli.explain import explain
from postroom.cli.inbox import inbox
from postroom.cli.init import init
from postroom.cli.list import list_messages
from postroom.cli.put import put
from postroom.cli.relay import relay
from postroom.cli.requeue import requeue
from postroom.cli.status import status


class _InOrder(click.Group):
    """Lists its commands as they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(
    cls=_InOrder,
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

    The store is named by --store URL, by POSTROOM_STORE, or by store = "…" in postroom.toml. Exit codes: 0 done,
    1 failed, 2 wrong use, 3 drained but something is dead.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    demo,
    init,
    put,
    relay,
    consume,
    status,
    list_messages,
    explain,
    requeue,
    discard,
    inbox,
    doctor,
    bench,
):
    app.add_command(command)
