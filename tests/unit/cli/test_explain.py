from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.cli.running import Desk

from postroom.clock import utcnow
from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Expired, Published, Retry, Settlement, Verdict
from postroom.contracts.store import Store
from postroom.message import Message
from postroom.stores import open_store

ID = "018f2c5e-7c1a-7b3e-9d53-2f1f0a6f4c11"
DEAD = "UPDATE outbox SET outcome = 'dead', settled_at = 1, attempts = 6, last_error_code = 'HTTP_422', last_error = ?"


def test_a_message_is_explained_a_sentence_a_line(desk: Desk) -> None:
    desk("put", "a.b", "--key", "k", "--id", ID)
    explained = desk("explain", ID)
    assert (explained.code, explained.err) == (0, "")
    state, turn, lane = explained.out.splitlines()
    assert state.startswith("It has been pending since 20")
    assert turn == "Nothing holds it back: it is next in line of its key."
    assert lane.endswith("no relay is running, so start one with `postroom relay`.")


def test_json_has_the_id_the_status_and_the_sentences(desk: Desk) -> None:
    desk("put", "a.b", "--id", ID)
    desk.execute(DEAD, "no")
    (shown,) = desk("explain", "--json", ID.upper()).objects()
    assert shown.keys() == {"id", "status", "sentences"}
    assert (shown["id"], shown["status"]) == (ID, "dead")
    assert shown["sentences"][0].startswith("It died at 1970-01-01 00:00:00Z (")
    assert shown["sentences"][0].endswith(" ago), after 6 tries: HTTP_422: no.")
    assert shown["sentences"][1] == "It may have been delivered, if an answer was lost."
    assert f"Run `postroom requeue {ID}` to send it again" in shown["sentences"][-1]


def test_what_a_terminal_would_obey_is_shown_as_an_escape(desk: Desk) -> None:
    desk("put", "a.b", "--id", ID)
    desk.execute(DEAD, "no\x1b[2J\nway")
    for options in ([], ["--json"]):
        out = desk("explain", ID, *options).out
        assert all(line.isprintable() for line in out.splitlines())
    assert r"HTTP_422: no\x1b[2J\nway." in desk("explain", ID).out


def test_an_unknown_id_fails_in_one_sentence(desk: Desk) -> None:
    for options in ([], ["--json"]):
        desk("explain", ID, *options).refuses(f"There is no message {ID} in this outbox", "`postroom list`", code=1)


def test_to_explain_nothing_is_wrong_use(desk: Desk) -> None:
    desk("explain").refuses("Missing argument 'ID|KEY'", "postroom explain --help", code=2)


# ── every place a message can be in, on both databases ──

HOUR, MOMENT = timedelta(hours=1), timedelta(milliseconds=1)
FATES: dict[str, Verdict] = {
    "published": Published(),
    "dead": Buried("HTTP_422", "no such order"),
    "unrouted": Buried("NO_ROUTE", "no route fits the type 'mail.sent'"),
    "unrouted and waiting": Retry(HOUR, "NO_ROUTE", "no route fits the type 'mail.sent'", spent=False),
    "in backoff": Retry(HOUR, "TIMEOUT", "no answer"),
    "away": Retry(HOUR, "CONNECT_FAILED", "connection refused", spent=False),
    "expired": Expired(),
}
SAYS = {
    "published": ["It was published at", "at the first try."],
    "dead": ["It died at", "HTTP_422: no such order.", "1 message waits behind it", "`postroom requeue"],
    "behind the dead": ["Its key 'dead' is parked: it waits behind", "which is dead: HTTP_422"],
    "unrouted": ["NO_ROUTE: no route fits", "It was not sent anywhere.", "Add a route that fits 'mail.sent'"],
    "unrouted and waiting": ["spent no attempt: NO_ROUTE", "Add a route that fits", "it goes by itself then."],
    "in backoff": ["It failed at", "TIMEOUT: no answer.", "Its next try is due at", "makes it due at once"],
    "away": ["It could not be sent at", "which spent no attempt: CONNECT_FAILED: connection refused."],
    "expired": ["It expired at", "It will not be sent"],
    "flying": ["It is in flight at relay alive (alive#1) on host-1 since"],
    "lost": ["It is in flight at relay", "whose lease ran out at", "it may have been delivered, and goes again."],
}


async def _fill(store: Store) -> dict[str, UUID]:
    """A message for each place it can be in; by that place."""
    await store.schema.migrate()
    await store.lanes.join(RelayInfo(owner="alive#1", name="alive", host="host-1"))
    taken = await store.lanes.take("alive#1", limit=1_000, lease=HOUR, lost=lambda _: Retry(MOMENT, "LOST"))
    epochs = {lane.lane: lane.epoch for lane in taken}
    ids: dict[str, UUID] = {}
    for name, verdict in FATES.items():
        late = utcnow() - HOUR if name == "expired" else None
        ids[name] = await _put(store, name, expires_at=late)
        claims = await store.outbox.claim("alive#1", epochs, limit=1)
        assert [each.message.id for claim in claims for each in claim.messages] == [ids[name]]
        await store.outbox.settle([Settlement(claim, {claim.messages[0].seq: verdict}) for claim in claims])
    ids["behind the dead"] = await _put(store, "dead")
    ids["flying"] = await _put(store, "flying")
    await store.outbox.claim("alive#1", epochs, limit=10)
    busy = {record.lane for record in await store.ops.find(Query(status="sending"))}
    for number in range(100):
        ids["lost"] = await _put(store, f"lost-{number}")
        (record,) = await store.ops.find(Query(ids=[ids["lost"]]))
        if record.lane is not None and record.lane not in busy:
            lane = {record.lane: epochs[record.lane]}
            assert await store.outbox.claim("alive#1", lane, limit=10)
            assert await store.lanes.renew("alive#1", lane, lease=MOMENT)
            return ids
    raise AssertionError("every lane is busy")


async def _put(store: Store, key: str, **fields: object) -> UUID:
    message = Message("mail.sent", key=key, data=1, **fields)  # type: ignore[arg-type]  # times, by name
    await store.outbox.put([message])
    return message.id


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_place_a_message_can_be_in_is_explained(
    kind: str, empty: Desk, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'post.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_database")

    async def fill() -> dict[str, UUID]:
        async with open_store(url) as store:
            return await _fill(store)

    ids = asyncio.run(fill())
    assert ids.keys() == SAYS.keys()
    for place, id in ids.items():
        told = empty("explain", str(id), store=url)
        assert (told.code, told.err) == (0, ""), place
        for part in SAYS[place]:
            assert part in told.out, place
        assert all(re.fullmatch(r"[A-Z1-9].*\.", line) for line in told.out.splitlines()), told.out
    empty("explain", ID, store=url).refuses(f"There is no message {ID} in this outbox", code=1)


def test_a_message_is_named_by_the_beginning_of_its_id(desk: Desk) -> None:
    first, second = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-9000-000000000002"
    for id_ in (first, second):
        desk("put", "order.paid", "--id", id_)
    assert desk("explain", "--json", first[:20]).objects()[0]["id"] == first
    assert desk("explain", "--json", first[:20].replace("-", "").upper()).objects()[0]["id"] == first
    desk("explain", "01890000").refuses(f"Several ids begin with 01890000: {first}, {second}; type more", code=1)
    desk("explain", "01890001").refuses("No message has an id that begins with 01890001", code=1)


def test_a_key_is_explained_by_the_message_that_the_others_wait_for(desk: Desk) -> None:
    first = desk("put", "order.paid", "--key", "order-7").out.strip()
    desk("put", "order.sent", "--key", "order-7")
    desk("put", "order.paid", "--key", "deadbeef")
    assert desk("explain", "--json", "order-7").objects()[0]["id"] == first
    assert desk("explain", "deadbeef").code == 0
    desk.execute("UPDATE outbox SET settled_at = 1, outcome = 'published' WHERE key = 'order-7'")
    assert desk("explain", "--json", "order-7").objects()[0]["status"] == "published"
    desk("explain", "order-8").refuses("neither a message nor a key 'order-8'", code=1)
