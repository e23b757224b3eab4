"""```python asgi: an application, served beside a `shop.db` and a `mail.py`.

It takes an order by `POST /orders/order-7?amount=12`, and the relay inside it carries the message to `mail.send`. Others do a
part of that: with `asgi=puts` it only takes the order; with `asgi=relays` it only carries what was put before; and with
`asgi=receives` it also charges, by the `billing.py` of docs/how-to/handle-messages-once.md, what is sent to it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.docs.blocks import ROOT, Block, all_of, each
from tests.docs.console import run_console
from tests.docs.places import send
from tests.docs.projects import MODELS, lay_out, swapped
from tests.docs.running import CHARGES, ORDERS, SHOP, a_shop, charges, messages
from tests.docs.serving import ask, mailed, served
from tests.servers.ports import free_port

from postroom.contracts.transport import Sent
from postroom.testing.waiting import until

DATABASE = {"postgresql+psycopg://app@db/shop": "sqlite+aiosqlite:///shop.db"}
PLACES = {"postgresql://app@db/shop": SHOP, "kafka://broker:9092/orders": "local://mail:send"}
ENVIRONMENT = {"POSTROOM_STORE": SHOP, "POSTROOM_TO": "local://mail:send"}


@each("application")
def test_an_application_takes_an_order_and_its_relay_carries_the_message(block: Block, tmp_path: Path) -> None:
    shop = a_shop(tmp_path, ORDERS)
    with served(tmp_path, block.code) as url:
        assert ask(f"{url}/orders/order-7?amount=12") == 200
        assert mailed(tmp_path, shop) == "order-7 12\n"


def takes_an_order(code: str, folder: Path) -> None:
    shop = a_shop(folder, ORDERS)
    lay_out({"shop/models.py": MODELS}, folder)
    with served(folder, swapped(code, DATABASE)) as url:
        assert ask(f"{url}/orders/order-7?amount=12") == 201
    assert [(record.message.key, record.message.data) for record in messages(shop)] == [("order-7", {"amount": 12})]


@each("application that puts")
def test_an_application_takes_an_order_and_puts_its_message(block: Block, tmp_path: Path) -> None:
    takes_an_order(block.code, tmp_path)


def test_a_name_that_nobody_has_is_found_inside_a_route(tmp_path: Path) -> None:
    (block,) = all_of("application that puts")
    with pytest.raises(HTTPError, match="500"):
        takes_an_order(swapped(block.code, {"key=number": "key=nunber"}), tmp_path)


@each("application that relays")
def test_the_relay_in_an_application_carries_what_was_put(block: Block, tmp_path: Path) -> None:
    """By the settings that it names, or by those of the environment; and it says how it is, if it says so at all."""
    shop = a_shop(tmp_path)
    put(tmp_path)
    names_them = "store=" in block.code
    code, env = (swapped(block.code, PLACES), {}) if names_them else (block.code, ENVIRONMENT)
    with served(tmp_path, code, **env) as url:
        assert mailed(tmp_path, shop) == "order-7 12\n"
        if "health_app" in block.code:
            assert {ask(f"{url}/postroom/{each}", "GET") for each in ("livez", "readyz")} == {200}


@each("application that receives")
def test_the_inbox_in_an_application_charges_what_is_sent_to_it(block: Block, tmp_path: Path) -> None:
    shop = a_shop(tmp_path, CHARGES)
    put(tmp_path)
    billing, *_ = (block for block in all_of("inbox") if block.page == ROOT / "docs/how-to/handle-messages-once.md")
    (tmp_path / "billing.py").write_text(billing.code)
    hooks = f"http://127.0.0.1:{free_port()}/payments"
    code = swapped(block.code, {'"kafka://broker:9092/payments"': f'"{hooks}", unsigned=True'})
    with served(tmp_path, code, **ENVIRONMENT):
        until(lambda: isinstance(send(hooks), Sent))
        assert charges(tmp_path) == [("order-7", 12)]
        assert mailed(tmp_path, shop) == "order-7 12\n"


def put(folder: Path) -> None:
    run_console(f"$ postroom put order.paid --store {SHOP} --key order-7 --data '{{\"amount\": 12}}'", folder)
