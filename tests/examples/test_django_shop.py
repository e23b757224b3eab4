"""The example of the shop in Django, as its README says: on the file that a newcomer gets, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from tests.examples.commands import Commands, wait_for_port
from tests.servers.ports import free_port

from postroom import Message, open_transport
from postroom.transport import Envelope, Outcome, Sent

FOLDER = Path(__file__).parents[2] / "examples/django_shop"


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where the shop's tables are."""
    if request.param == "sqlite":
        return {**os.environ, "SHOP_DB": str(tmp_path / "shop.db")}
    parts = urlsplit(request.getfixturevalue("postgres_database"))
    there = {"PGDATABASE": parts.path[1:], "PGHOST": parts.hostname, "PGPORT": parts.port, "PGUSER": parts.username}
    return {**os.environ, **{name: str(value) for name, value in there.items()}}


@pytest.mark.timeout(300)
def test_every_order_becomes_one_parcel_and_one_that_was_rolled_back_none(env: dict[str, str]) -> None:
    web, hooks = str(free_port()), str(free_port())
    with Commands(FOLDER, env, {"8000": web, "8001": hooks}) as commands:
        said: dict[str, str] = {}
        for line in commands.lines():
            if "relay" in line:
                wait_for_port(int(hooks))
            said[line] = commands.run(line)

        answers = {line.split()[2]: answer for line, answer in said.items() if line.startswith("curl")}
        assert answers["item=lamp"].startswith('201 {"order": ')
        assert answers["item=dragon"] == '409 {"error": "sold out"}'
        listed, relay, status, inbox, parcels = list(said.values())[-5:]
        assert listed.count("order.placed") == 2
        assert "2 published" in relay
        assert "published      2" in status
        assert "warehouse" in inbox
        assert sorted(line.partition(" for ")[0] for line in parcels.splitlines()) == ["chair", "lamp"]

        again(commands, int(hooks))
        assert commands.run(commands.lines()[-1]) == parcels


def again(commands: Commands, port: int) -> None:
    """Deliver the first order once more, as a relay would whose answer was lost."""
    first = json.loads(commands.run("python manage.py postroom list --json --payload").splitlines()[0])
    message = Message(first["type"], key=first["key"], id=UUID(first["id"]), data={"item": "lamp"})
    assert isinstance(asyncio.run(send(f"http://127.0.0.1:{port}/orders", message)), Sent)


async def send(url: str, message: Message) -> Outcome:
    publisher = open_transport(url)
    await publisher.open()
    (outcome,) = await publisher.publish([Envelope(message)], timeout=timedelta(seconds=60))
    await publisher.close()
    return outcome
