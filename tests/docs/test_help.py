"""```sh help: the examples in the command line's own help, docs/reference/cli.md. They are typed one after the other.

Each block begins anew: a `shop.db` where order-7 is dead, a function and an inbox, a file for each that is read. The servers of
the page are a file of SQLite and a webhook here. What is not typed stands in `LEFT`, and is read against the command line.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.docs.blocks import Block, all_of, each
from tests.docs.commands import check_commands
from tests.docs.console import run_console
from tests.docs.places import send
from tests.docs.projects import lay_out
from tests.docs.running import CHARGES, SHOP, a_shop, environment, messages
from tests.docs.terminal import Terminal, goes_on
from tests.servers.ports import free_port

from postroom.contracts.transport import Sent

LEFT = {
    "postroom demo": "it takes half a minute, and tests/unit/cli/test_demo.py runs it",
    "postroom bench": "it measures for seconds, and tests/unit/cli/test_bench.py runs it",
    "postroom init --store postgresql://app@db/shop --schema messaging": "SQLite has no schemas",
}
ID = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"
ELSEWHERE = (
    "nats://broker:4222/ORDERS",
    "nats://nats/ORDERS",
    "sqs://eu-central-1/orders.fifo",
    "https://shop.example/hooks",
)
INBOX = """
from postroom import Inbox

inbox = Inbox("billing")


@inbox.on("order.paid")
def charge(message, tx):
    tx.execute("INSERT OR REPLACE INTO charges VALUES (?, ?)", [message.key, message.data["amount"]])
"""
FILES = {
    "mail.py": "def refuse(message):\n    raise ValueError('no')\n",
    "shop/__init__.py": INBOX,
    "shop/billing.py": INBOX,
    "shop/mail.py": "def send(message): ...\n",
    "shop.toml": '[[routes]]\nname = "orders"\npattern = "*"\nto = "local://shop.mail:send"\n',
    "invoice.json": '{"amount": 12}',
    "label.pdf": "%PDF",
    "generate": '#!/bin/sh\necho \'{"type": "order.paid", "key": "order-9"}\'\n',
}


def a_folder(folder: Path, code: str) -> str:
    """As described; the URL of its store. A relay that drains would end with 3 for the dead one: there it is pending."""
    store = a_shop(folder, CHARGES)
    lay_out(FILES, folder)
    (folder / "generate").chmod(0o755)
    run_console(f"$ postroom put order.paid --store {SHOP} --key order-7 --data '{{\"amount\": 12}}' --id {ID}", folder)
    refused = f"$ postroom relay --store {SHOP} --to local://mail:refuse --drain --max-attempts 1  # exit code 3"
    if "--drain" not in code:
        run_console(refused, folder)
    return store


def typed(code: str, folder: Path) -> None:
    """Types each line that is not left out, and sees that what goes on does its work."""
    store, hooks = a_folder(folder, code), f"http://127.0.0.1:{free_port()}/orders"
    path = f"{folder}:{environment()['PATH']}"
    for line in code.splitlines():
        if not left_out(line):
            with Terminal(folder, POSTROOM_STORE=SHOP, PATH=path) as terminal:
                said = terminal.type(here(line, hooks))
                if goes_on(line.split()):
                    works(line, hooks, store, terminal)
                assert "order.paid" in said or "jq" in line or not line.startswith("postroom list")


def left_out(line: str) -> bool:
    return line.startswith(tuple(LEFT))


def here(line: str, hooks: str) -> str:
    """The line for this machine. Nobody is here to say yes; and doctor ends with 1 when it has found something."""
    for written in ELSEWHERE:
        line = line.replace(written, hooks)
    if hooks in line and line.startswith("postroom consume"):
        line += " --unsigned"
    if not shutil.which("jq"):
        line = line.partition(" | jq")[0]
    line = line.replace("postgresql://app@db/shop", SHOP).replace("8081", str(free_port()))
    if "discard" in line and "--dry-run" not in line:
        return f"{line} --yes"
    return f"{line} || test $? = 1" if "doctor" in line else line


def works(line: str, hooks: str, store: str, terminal: Terminal) -> None:
    """A consumer answers, a relay publishes."""
    if "consume" in line:
        terminal.until(lambda: isinstance(send(hooks), Sent))
        return
    if any(each in line for each in ELSEWHERE):
        terminal.type(f"postroom consume --from {hooks} --app shop:inbox --unsigned")
    new = terminal.type("postroom put order.placed --key order-8").strip()
    terminal.until(lambda: {str(each.message.id): each.status for each in messages(store)}[new] == "published")


@each("commands of the help")
def test_the_examples_of_the_help_can_be_typed(block: Block, tmp_path: Path) -> None:
    typed(block.code, tmp_path)


def test_what_is_left_out_is_there_and_could_be_typed() -> None:
    lines = [(line, block) for block in all_of("commands of the help") for line in block.code.splitlines()]
    left = [(line, block) for line, block in lines if left_out(line)]
    assert {each for each in LEFT if any(line.startswith(each) for line, _ in left)} == set(LEFT)
    assert len(left) < len(lines) / 3
    for line, block in left:
        check_commands(line, block.page)


@pytest.mark.parametrize(
    "line", ["postroom list --statsu dead", "postroom put --data @nothing.json", "postroom explain 7"]
)
def test_an_example_that_would_be_refused_is_found(line: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        typed(line, tmp_path)
