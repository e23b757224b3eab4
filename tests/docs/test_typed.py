"""```sh run: what is typed there is typed, in a folder with a `shop.db`, and order-7 is put afterwards.

A relay that was started publishes it, and answers at its port, if it was told one; a consumer charges it. The stores, brokers
and ports of the page have those of this machine in their place. With `server=mongo` the store is one without transactions.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block, all_of, each
from tests.docs.running import CHARGES, SHOP, a_shop, charges, messages, prepare
from tests.docs.serving import MAIL, ask
from tests.docs.terminal import Terminal
from tests.servers.ports import free_port, listens

STORES = {"postgresql://app@db/shop": SHOP, "postgresql://app@db/billing": "sqlite:///billing/shop.db"}
BROKERS = ("kafka://broker:9092/orders", "https://example.com/hooks")
SECRETS = {"store-url": SHOP, "broker-url": "local://mail:send"}


def a_folder(folder: Path, code: str) -> dict[str, str]:
    """With all that the lines may need; the environment that they need, too."""
    billing, *_ = (block for block in all_of("inbox") if block.page == ROOT / "docs/how-to/handle-messages-once.md")
    for name in ("billing", "secrets"):
        (folder / name).mkdir()
    a_shop(folder / "billing", CHARGES)
    (folder / "billing.py").write_text(billing.code)
    (folder / "mail.py").write_text(MAIL)
    for name, url in SECRETS.items():
        (folder / "secrets" / name).write_text(url)
        (folder / "secrets" / name).chmod(0o600)
    return {} if "_FILE=" in code else {"POSTROOM_STORE": SHOP, "POSTROOM_TO": "local://mail:send"}


def here(code: str, hooks: str) -> str:
    """The lines for this machine. A port is another each time: two lines may be two ways to say the same."""
    places = {**STORES, **dict.fromkeys(BROKERS, hooks), "/run/secrets/": "secrets/"}
    for written, real in places.items():
        code = code.replace(written, real)
    code = re.sub(r"(?m)^(.*postroom consume .*http://.*)$", r"\1 --unsigned", code)
    return re.sub("8081", lambda _: str(free_port()), code)


def goes_well(code: str, folder: Path, store: str) -> None:
    hooks = f"http://127.0.0.1:{free_port()}/orders"
    if "postroom init" not in code:
        prepare(store)
    with Terminal(folder, **a_folder(folder, code)) as terminal:
        typed = here(code, hooks)
        for line in typed.splitlines():
            terminal.type(line)
        for port in map(int, re.findall(r"--health (?:0\.0\.0\.0:)?(\d+)", typed)):
            terminal.until(partial(listens, port))
            assert ask(f"http://127.0.0.1:{port}/livez", "GET") == 200
        if hooks in typed and "postroom consume" not in typed:
            terminal.type(
                f"postroom consume --store sqlite:///billing/shop.db --from {hooks} --app billing:inbox --unsigned"
            )
        terminal.type(f"postroom put order.paid --store '{store}' --key order-7 --data '{{\"amount\": 12}}'")
        if "postroom relay" in typed:
            terminal.until(lambda: [record.status for record in messages(store)] == ["published"])
            assert charges(folder / "billing") == [("order-7", 12)] * (hooks in typed)
            assert (folder / "mails.txt").exists() == (hooks not in typed)
    assert [record.message.key for record in messages(store)] == ["order-7"]


@each("commands that run")
def test_what_is_typed_goes_well(block: Block, tmp_path: Path) -> None:
    goes_well(block.code, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")


@each("commands that run at mongo")
def test_what_is_typed_goes_well_without_transactions(
    block: Block, tmp_path: Path, mongo_standalone_database: str
) -> None:
    joint = "&" if "?" in mongo_standalone_database else "?"
    store = f"{mongo_standalone_database}{joint}postroom_transactions=off"
    written = "mongodb://db/shop?postroom_transactions=off"
    assert written in block.code
    goes_well(block.code.replace(written, store), tmp_path, store)


@pytest.mark.parametrize(
    "line", ["postroom init --lanse 3", "postroom init  # exit code 3", "postroom relay --to local://mail:sned"]
)
def test_a_line_that_does_not_go_as_it_says_is_found(line: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"postroom init|has ended"):
        goes_well(line, tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
