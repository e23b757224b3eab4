"""`postroom relay` by the routes of postroom.toml."""

from __future__ import annotations

import signal
import socket
import subprocess
import time

import pytest
from tests.commands import POSTROOM, Popen
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


def test_a_drain_that_could_not_end_is_refused(shop: Desk) -> None:
    text = ROUTES.partition("[[routes]]\nto")[0]
    (shop.folder / "postroom.toml").write_text(f'[relay]\nno_route = "wait"\n{text}')
    refused = shop("relay", "--drain")
    assert refused.code == 2
    assert refused.err.startswith("error: A drain would not end while messages wait for a route")
    assert "published" not in refused.out


def test_one_broker_that_is_away_counts_no_failed_try(shop: Desk) -> None:
    """The other route goes on, and the end of the log says the truth."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = f'"http://127.0.0.1:{closed.getsockname()[1]}"'
        (shop.folder / "postroom.toml").write_text(ROUTES.replace('"local://handlers:rest"', away))
        command = [*POSTROOM, "relay", "--poll", "50ms"]
        relay = Popen(command, cwd=shop.folder, env=shop.environment(), stdout=subprocess.PIPE, text=True)
        try:
            assert relay.stdout is not None
            next(line for line in relay.stdout if "route route-2 is paused: the broker is away" in line)
            end = time.monotonic() + 60
            while not delivered(shop, "orders"):
                assert time.monotonic() < end
                time.sleep(0.05)
            relay.send_signal(signal.SIGTERM)
            out, _ = relay.communicate(timeout=60)
        finally:
            relay.kill()
            relay.communicate()
    assert out.splitlines()[-1].endswith("0 failed tries, 0 dead")
    (waiting,) = shop("list", "--key", "b", "--json").objects()
    assert (waiting["status"], waiting["attempts"]) == ("pending", 0)


def test_a_password_in_the_url_of_a_route_is_never_shown(shop: Desk) -> None:
    (shop.folder / "postroom.toml").write_text('[[routes]]\nto = "gopher://app:s3cr3t@shop.example"\n')
    refused = shop("relay", "--drain", POSTROOM_DEBUG="1")
    assert refused.code == 2
    assert "route 'route-1': Postroom knows no transport gopher://" in refused.err
    assert "s3cr3t" not in refused.err + refused.out


def test_without_a_place_to_go_it_is_wrong_use(desk: Desk) -> None:
    desk("relay").refuses("Nowhere to go: give --to URL", "[[routes]]", code=2)
