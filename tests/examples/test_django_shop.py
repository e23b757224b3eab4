"""The example of the shop in Django, as its README says: on the file that a newcomer gets, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import socket
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen
from uuid import UUID

import pytest
from tests.examples.readme import Example
from tests.servers.ports import free_port

from postroom import Message, open_publisher
from postroom.contracts.transport import Envelope, Outcome, Sent

PATIENCE_SECONDS = 90


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where the shop's tables are."""
    if request.param == "sqlite":
        return {"SHOP_DB": str(tmp_path / "shop.db")}
    parts = urlsplit(request.getfixturevalue("postgres_database"))
    there = {"PGDATABASE": parts.path[1:], "PGHOST": parts.hostname, "PGPORT": parts.port, "PGUSER": parts.username}
    return {name: str(value) for name, value in there.items()}


class Shop:
    """The README's lines, at ports that are free here. What is started with `&` is ended at the end."""

    def __init__(self, env: dict[str, str], ending: ExitStack) -> None:
        # The database is Django's: what POSTROOM_STORE says must not count.
        self.example, self.env, self.ending = Example("django_shop", "sqlite:////nowhere/at/all.db"), env, ending
        self.web, self.hooks = free_port(), free_port()

    def lines(self) -> list[str]:
        (block,) = self.example.blocks()
        lines = (re.sub(r"\s+# .*", "", line) for line in block if line and not line.startswith("kill"))
        return [line.replace("8000", str(self.web)).replace("8001", str(self.hooks)) for line in lines]

    def run(self, line: str) -> str:
        if line.startswith("curl"):
            _, _, form, url = shlex.split(line)
            return self.post(url, form)
        if not line.endswith("&"):
            return self.example.run(line, **self.env)
        process = self.ending.enter_context(self.example.start(line.removesuffix("&"), **self.env))
        self.ending.callback(process.terminate)
        listening(self.web if "runserver" in line else self.hooks)
        return ""

    def post(self, url: str, form: str) -> str:
        """The server's answer, with its status before it."""
        try:
            with urlopen(url, form.encode(), timeout=PATIENCE_SECONDS) as answer:
                return f"{answer.status} {answer.read().decode()}"
        except HTTPError as exc:
            return f"{exc.code} {exc.read().decode()}"


def listening(port: int) -> None:
    """Wait until somebody is."""
    patience = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < patience:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens at port {port}")


@pytest.mark.timeout(300)
def test_every_order_becomes_one_parcel_and_one_that_was_rolled_back_none(env: dict[str, str]) -> None:
    with ExitStack() as ending:
        shop = Shop(env, ending)
        said = [(line, shop.run(line)) for line in shop.lines()]

        answers = {line.split()[2]: answer for line, answer in said if line.startswith("curl")}
        assert answers["item=lamp"].startswith('201 {"order": ')
        assert answers["item=dragon"] == '409 {"error": "sold out"}'
        listed, relay, status, inbox, parcels = (answer for _, answer in said[-5:])
        assert listed.count("order.placed") == 2
        assert "2 published" in relay
        assert "published      2" in status
        assert "warehouse" in inbox
        assert sorted(line.partition(" for ")[0] for line in parcels.splitlines()) == ["chair", "lamp"]

        again(shop)
        assert shop.run(shop.lines()[-1]) == parcels


def again(shop: Shop) -> None:
    """Deliver the first order once more, as a relay would whose answer was lost."""
    first = json.loads(shop.run("python manage.py postroom list --json --payload").splitlines()[0])
    message = Message(first["type"], key=first["key"], id=UUID(first["id"]), data={"item": "lamp"})
    assert isinstance(asyncio.run(send(f"http://127.0.0.1:{shop.hooks}/orders", message)), Sent)


async def send(url: str, message: Message) -> Outcome:
    publisher = open_publisher(url)
    await publisher.open()
    (outcome,) = await publisher.publish([Envelope(message)], timeout=timedelta(seconds=60))
    await publisher.close()
    return outcome
