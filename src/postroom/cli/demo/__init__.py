"""`postroom demo`: a small shop, so that a newcomer sees what an outbox is for."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import click

from postroom.cli.demo.proof import compare, show
from postroom.cli.demo.stage import PlainStage, Stage
from postroom.cli.demo.story import play


@click.command(short_help="Watch orders and their messages travel, with the faults that strike them.")
@click.option("--plain", is_flag=True, help="Plain lines, as fast as they come: what a pipe gets anyway.")
def demo(plain: bool) -> None:
    """A small shop on SQLite takes orders; each writes a row and puts a message, in one transaction. A relay carries the
    messages to a warehouse in this process. One order is rolled back, one message fails and is retried, one is refused,
    parks its customer, and is requeued by a person. At the end the tables are compared: as many deliveries as orders, none
    lost, none of what was rolled back. On a terminal it takes about a quarter of a minute.

    \b
    Examples:
      postroom demo
      postroom demo --plain
    """
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        proof = asyncio.run(play(Path(folder) / "shop.db", _stage(plain=plain)))
    show(proof)
    if problems := compare(proof):
        raise click.ClickException(f"that must never happen, please report it: {'; '.join(problems)}")


def _stage(*, plain: bool) -> Stage:
    if plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return PlainStage()
    from postroom.cli.demo.live import LiveStage

    return LiveStage()
