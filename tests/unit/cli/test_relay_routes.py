"""`postroom relay` by the routes of postroom.toml."""

from __future__ import annotations

import pytest
from tests.unit.cli.running import Desk

HANDLERS = """
def orders(message): open("orders", "a").write(f"{message.key}\\n")
def rest(message): open("rest", "a").write(f"{message.key}\\n")
"""
ROUTES = """
[[routes]]
name = "orders"
pattern = "order.*"
to = "local://handlers:orders"
topic = "orders"
[[routes]]
to = "local://handlers:rest"
"""


@pytest.fixture
def shop(desk: Desk) -> Desk:
    (desk.folder / "handlers.py").write_text(HANDLERS)
    (desk.folder / "postroom.toml").write_text(ROUTES)
    desk("put", "order.paid", "--key", "a")
    desk("put", "mail.sent", "--key", "b")
    return desk


def delivered(desk: Desk, name: str) -> list[str]:
    file = desk.folder / name
    return file.read_text().split() if file.exists() else []


def test_each_message_goes_by_the_route_of_its_type_and_the_first_lines_list_them(shop: Desk) -> None:
    done = shop("relay", "--drain", "--owner", "shop")
    assert (done.code, done.err) == (0, "")
    assert (delivered(shop, "orders"), delivered(shop, "rest")) == (["a"], ["b"])
    first, one, two = done.out.splitlines()[:3]
    assert first.startswith("relay shop:")
    assert first.endswith(": sqlite:///shop.db by orders, route-2")
    assert one == "  orders: order.* to local://handlers:orders, topic orders"
    assert two == "  route-2: * to local://handlers:rest"


def test_to_wins_over_the_routes_and_a_note_says_so(shop: Desk) -> None:
    done = shop("relay", "--drain", "--to", "local://handlers:rest")
    assert done.code == 0
    assert done.err.startswith("note: --to (or POSTROOM_TO) is given, so all goes there")
    assert (delivered(shop, "orders"), delivered(shop, "rest")) == ([], ["a", "b"])


def test_what_no_route_fits_is_dead_and_says_why(shop: Desk) -> None:
    (shop.folder / "postroom.toml").write_text(ROUTES.partition("[[routes]]\nto")[0])
    done = shop("relay", "--drain")
    assert done.code == 3
    (dead,) = shop("list", "--status", "dead", "--json").objects()
    assert (dead["key"], dead["last_error_code"]) == ("b", "NO_ROUTE")


def test_a_password_in_the_url_of_a_route_is_never_shown(shop: Desk) -> None:
    (shop.folder / "postroom.toml").write_text('[[routes]]\nto = "gopher://app:s3cr3t@shop.example"\n')
    refused = shop("relay", "--drain", POSTROOM_DEBUG="1")
    assert refused.code == 2
    assert "route 'route-1': Postroom knows no transport gopher://" in refused.err
    assert "s3cr3t" not in refused.err + refused.out


def test_without_a_place_to_go_it_is_wrong_use(desk: Desk) -> None:
    desk("relay").refuses("Nowhere to go: give --to URL", "[[routes]]", code=2)
