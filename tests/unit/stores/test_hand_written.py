"""A row that a stranger writes, in any language, naming only type, key and payload, is a whole message."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import psycopg
import pymysql
import pytest
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome, SQLiteHome

from postroom.clock import utcnow
from postroom.contracts.ops import Query, Record
from postroom.contracts.outbox import Claimed
from postroom.contracts.store import Store
from postroom.testing.contracts._case import NOON, Relay, a_message, a_relay, put

NEAR = timedelta(minutes=2)
BODIES = ['{"amount": 12}', '{ "amount" :  12.50 }\n', "naïve ☃ 𝄞 \\ %s :id '' \t", "", "null", "a\rb"]
ODD_KEYS = [
    "ключ",
    "注文-1",
    "e\u0301",
    "\u00e9",
    "👩‍👩‍👧",
    "a'b",
    'a"b',
    "a b",
    "%s",
    ":key",
    "\\x41",
    "NULL",
    " ",
    "\u202e42",
]


@pytest.fixture
async def store(home: Home) -> AsyncIterator[Store]:
    async with home.open() as store:
        await store.schema.migrate()
        yield store


def quoted(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def insert(type: str, key: str | None, payload: str | None) -> str:
    return f"INSERT INTO outbox (type, key, payload) VALUES ({quoted(type)}, {quoted(key)}, {quoted(payload)});\n"


def by_hand(home: Home, script: str) -> None:
    """Run it by the database's own command line program, as a person would; where there is none, by the driver."""
    match home:
        case PostgresHome() if psql := shutil.which("psql"):
            command = [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", home.url]
        case SQLiteHome() if program := shutil.which("sqlite3"):
            command = [program, "-bail", str(home.path)]
        case PostgresHome():
            with psycopg.connect(home.url) as connection:
                connection.execute(script.encode())
            return
        case MariaDBHome():
            home.script(script)
            return
        case _:
            assert isinstance(home, SQLiteHome)
            with closing(sqlite3.connect(home.path)) as file:
                file.executescript(script)
            return
    environment = {"PGCLIENTENCODING": "UTF8", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, input=script.encode(), capture_output=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""


async def claimed(relay: Relay) -> list[Claimed]:
    """Everything there is, in the order it was claimed."""
    came: list[Claimed] = []
    while claims := await relay.claim(now=NOON):
        came += [one for claim in claims for one in claim.messages]
        await relay.settle(claims)
    return came


async def the_record(store: Store, key: str | None = None) -> Record:
    (record,) = await store.ops.find(Query(key=key))
    return record


async def test_it_is_a_whole_message(home: Home, store: Store) -> None:
    before = utcnow()
    by_hand(home, insert("order.paid", "order-1", '{"amount": 12}'))
    after = utcnow()
    relay = await a_relay(store)
    (one,) = await claimed(relay)
    record = await the_record(store, "order-1")
    message = one.message
    assert (message.type, message.key, message.body) == ("order.paid", "order-1", b'{"amount": 12}')
    assert message.content_type == "application/json"
    assert message.data == {"amount": 12}
    assert (dict(message.headers), message.topic, message.expires_at) == ({}, None, None)
    assert message.time.utcoffset() == timedelta(0), "what goes out is in UTC"
    assert (one.attempts, one.expired) == (0, False)
    for moment in (message.time, record.created_at):
        assert before - NEAR <= moment <= after + NEAR
    assert record.status == "published"


async def test_its_id_is_a_uuid_of_version_7_made_now(home: Home, store: Store) -> None:
    before = utcnow()
    by_hand(home, insert("order.paid", "a", "{}") * 50)
    after = utcnow()
    ids = [record.message.id for record in await store.ops.find(Query())]
    assert len(set(ids)) == 50
    for id in ids:
        assert isinstance(id, UUID)
        assert (id.version, id.variant) == (7, RFC_4122)
        made = datetime.fromtimestamp((id.int >> 80) / 1000, UTC)
        assert before - NEAR <= made <= after + NEAR
    assert len({id.int >> 62 & 3 for id in ids}) == 1
    # The rest is random: in no bit of it do all fifty agree.
    random = 0
    for id in ids:
        random |= id.int ^ ids[0].int
    free = (0xFFF << 64) | ((1 << 62) - 1)
    assert random & free == free


async def test_it_is_near_its_id_in_time(home: Home, store: Store) -> None:
    by_hand(home, insert("order.paid", "a", "{}"))
    record = await the_record(store)
    made = datetime.fromtimestamp((record.message.id.int >> 80) / 1000, UTC)
    assert abs(made - record.created_at) < timedelta(seconds=5)
    assert abs(record.message.time - record.created_at) < timedelta(seconds=5)


async def test_the_times_are_right_whatever_zone_the_writer_lives_in(postgres_home: PostgresHome) -> None:
    async with postgres_home.open() as store:
        await store.schema.migrate()
        zones = ("Pacific/Kiritimati", "America/Los_Angeles", "UTC")
        by_hand(postgres_home, "".join(f"SET TIME ZONE '{zone}';\n" + insert("a", zone, "{}") for zone in zones))
        moments = [record.created_at for record in await store.ops.find(Query())]
        assert max(moments) - min(moments) < NEAR
        assert abs(utcnow() - moments[0]) < NEAR


async def test_the_times_on_mariadb_are_right_whatever_zone_the_writer_lives_in(mariadb_home: MariaDBHome) -> None:
    async with mariadb_home.open() as store:
        await store.schema.migrate()
        zones = ("+13:00", "-08:00", "SYSTEM")
        by_hand(mariadb_home, "".join(f"SET time_zone = '{zone}';\n" + insert("a", zone, "{}") for zone in zones))
        moments = [record.created_at for record in await store.ops.find(Query())]
        assert max(moments) - min(moments) < NEAR
        assert abs(utcnow() - moments[0]) < NEAR


async def test_keys_that_differ_in_case_or_a_trailing_blank_are_different_keys(home: Home, store: Store) -> None:
    by_hand(home, "".join(insert("order.paid", key, "{}") for key in ("a", "A", "a ", "á")))
    await store.outbox.put([a_message(key=key) for key in ("a", "A", "a ", "á")])
    for key in ("a", "A", "a ", "á"):
        assert [record.message.key for record in await store.ops.find(Query(key=key))] == [key, key]


async def test_it_stands_in_line_with_those_of_its_key(home: Home, store: Store) -> None:
    await put(store, "a", "b", "a")
    by_hand(home, insert("order.paid", "a", "1") + insert("order.paid", "b", "1"))
    await put(store, "a", "b")
    by_hand(home, insert("order.paid", "a", "2"))
    await put(store, "a")
    seqs = {key: [record.seq for record in await store.ops.find(Query(key=key))] for key in "ab"}
    assert (seqs["a"], seqs["b"]) == ([1, 3, 4, 6, 8, 9], [2, 5, 7])
    came = await claimed(await a_relay(store))
    for key in "ab":
        assert [one.seq for one in came if one.message.key == key] == seqs[key]


async def test_it_is_not_passed_by_a_later_one_of_its_key(home: Home, store: Store) -> None:
    """Claimed one at a time, a stranger's row still comes before what was put after it."""
    by_hand(home, insert("order.paid", "a", "1"))
    await put(store, "a")
    relay = await a_relay(store)
    assert await relay.seqs(limit=1) == [1]


async def test_the_same_key_has_the_same_lane_whoever_writes_it(home: Home, store: Store) -> None:
    keys = [*ODD_KEYS, *(f"order-{number}" for number in range(30))]
    await store.outbox.put([a_message(key=key) for key in keys])
    by_hand(home, "".join(insert("order.paid", key, "{}") for key in keys))
    relay = await a_relay(store)
    lanes: dict[str | None, set[int]] = {}
    came: list[Claimed] = []
    while claims := await relay.claim(now=NOON):
        for claim in claims:
            came += claim.messages
            for one in claim.messages:
                lanes.setdefault(one.message.key, set()).add(claim.lane)
        await relay.settle(claims)
    assert len(came) == 2 * len(keys)
    assert set(lanes) == set(keys)
    assert {key for key, found in lanes.items() if len(found) != 1} == set()
    assert {(record.message.key, record.lane) for record in await store.ops.find(Query())} == {
        (key, lane) for key, found in lanes.items() for lane in found
    }


async def test_its_body_is_kept_byte_for_byte(home: Home, store: Store) -> None:
    by_hand(home, "".join(insert("order.paid", f"k{number}", body) for number, body in enumerate(BODIES)))
    came = await claimed(await a_relay(store))
    bodies = {one.message.key: one.message.body for one in came}
    assert bodies == {f"k{number}": body.encode() for number, body in enumerate(BODIES)}


async def test_odd_keys_are_kept_as_they_are(home: Home, store: Store) -> None:
    by_hand(home, "".join(insert("order.paid", key, "{}") for key in ODD_KEYS))
    came = await claimed(await a_relay(store))
    assert sorted(str(one.message.key) for one in came) == sorted(ODD_KEYS)
    for key in ODD_KEYS:
        assert len(await store.ops.find(Query(key=key))) == 1


async def test_rows_without_a_key_are_lines_of_their_own(home: Home, store: Store) -> None:
    by_hand(home, insert("order.paid", None, "{}") * 100)
    came = await claimed(await a_relay(store))
    assert [one.message.key for one in came] == [None] * 100
    assert len({record.lane for record in await store.ops.find(Query())}) > 20


async def test_a_row_without_a_payload_is_a_message_without_a_body(home: Home, store: Store) -> None:
    by_hand(home, insert("order.paid", "a", None))
    await put(store, "a")
    first, second = await claimed(await a_relay(store))
    assert (first.message.body, second.message.body) == (None, b'{"amount":12}')


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        ("no json", {"unreadable-headers": "no json"}),
        ("{", {"unreadable-headers": "{"}),
        ("[1]", {"unreadable-headers": "[1]"}),
        ("null", {"unreadable-headers": "null"}),
        ("", {"unreadable-headers": ""}),
        ('{"n": 1, "deep": {"a": null}, "s": "x"}', {"n": "1", "deep": '{"a": null}', "s": "x"}),
    ],
)
async def test_headers_that_are_none_hide_nothing(home: Home, store: Store, headers: str, read: dict[str, str]) -> None:
    await put(store, "a")
    by_hand(
        home,
        f"INSERT INTO outbox (type, key, payload, headers) VALUES ('order.paid', 'a', '{{}}', {quoted(headers)});\n",
    )
    await put(store, "a", "b")
    came = await claimed(await a_relay(store))
    assert sorted(one.seq for one in came) == [1, 2, 3, 4]
    (odd,) = (one for one in came if one.seq == 2)
    assert odd.message.headers == read
    assert len(await store.ops.find(Query())) == 4


@pytest.mark.parametrize(("columns", "values"), [("type, key", "NULL, 'a'"), ("key", "'a'")])
async def test_a_row_without_a_type_is_refused_at_once(home: Home, store: Store, columns: str, values: str) -> None:
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError, pymysql.Error)):
        home.sql(f"INSERT INTO outbox ({columns}) VALUES ({values})")
    assert await store.ops.find(Query()) == []


@pytest.mark.parametrize(
    ("dialect", "columns", "values"),
    [
        ("sqlite", "id", "'order-1'"),
        ("sqlite", "payload", "CAST(x'ff' AS TEXT)"),
        ("sqlite", "topic", "CAST(x'ff' AS TEXT)"),
        ("sqlite", "expires_at", "999999999999999999"),
        ("sqlite", "time", "-999999999999999999"),
        ("postgres", "expires_at", "'infinity'"),
        ("postgres", "time", "'-infinity'"),
        ("postgres", "expires_at", "'20000-01-01'"),
        ("postgres", "expires_at", "'0044-03-15 BC'"),
        ("postgres", "time", "'20000-01-01'"),
        ("postgres", "time", "'0044-03-15 BC'"),
        ("mariadb", "id", "'order-1'"),
        ("mariadb", "time", "'0000-00-00'"),
        ("mariadb", "expires_at", "'0000-00-00'"),
        ("mariadb", "created_at", "'0000-00-00'"),
        ("mariadb", "time", "'9999-12-31 23:59:59.999999'"),
    ],
)
async def test_a_row_that_cannot_be_read_does_not_stop_the_others(
    request: pytest.FixtureRequest, dialect: str, columns: str, values: str
) -> None:
    """What a database takes though it is no message; those of other keys in its lane must go on."""
    home: Home = request.getfixturevalue(f"{dialect}_home")
    async with home.open(lanes=1) as store:
        await store.schema.migrate()
        await put(store, "a")
        home.sql(f"INSERT INTO outbox (type, key, {columns}) VALUES ('order.paid', 'odd', {values})")
        await put(store, "b")
        came = await claimed(await a_relay(store))
        assert [one.message.key for one in came] == ["a", "odd", "b"]
        assert len(await store.ops.find(Query())) == 3


async def test_a_number_as_a_key_is_that_number_as_text(sqlite_home: SQLiteHome) -> None:
    async with sqlite_home.open() as store:
        await store.schema.migrate()
        await store.outbox.put([a_message(key=42)])
        by_hand(sqlite_home, "INSERT INTO outbox (type, key, payload) VALUES ('order.paid', 42, '{}');\n")
        sqlite_home.sql("INSERT INTO outbox (type, key, payload) VALUES (?, ?, ?)", "order.paid", 42, 17)
        relay = await a_relay(store)
        (claim,) = await relay.claim()
        assert [one.message.key for one in claim.messages] == ["42", "42", "42"]
        assert [one.message.body for one in claim.messages] == [b'{"amount":12}', b"{}", b"17"]
