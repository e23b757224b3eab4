"""The statements in the .sql files: each is used, each has what it asks for, and dialects mean the same by a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.stores.homes import Home

import postroom.stores.mysql
import postroom.stores.postgres
import postroom.stores.sqlite
from postroom.clock import utcnow
from postroom.config.tables import NAME_MAX, TableNames
from postroom.contracts.inbox import DeadQuery, KnownQuery
from postroom.contracts.lanes import RelayInfo
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Expired, Published, Retry, Settlement, Verdict
from postroom.contracts.store import Store
from postroom.contracts.transport import Delivery
from postroom.stores import open_store
from postroom.stores.mysql.statements import FILES as MYSQL_FILES
from postroom.stores.mysql.statements import INBOX_FILES as MYSQL_INBOX_FILES
from postroom.stores.mysql.statements import Statements as MySQLStatements
from postroom.stores.postgres.statements import FILES as POSTGRES_FILES
from postroom.stores.postgres.statements import INBOX_FILES as POSTGRES_INBOX_FILES
from postroom.stores.postgres.statements import Statements as PostgresStatements
from postroom.stores.sql.files import INBOX_PARTS, PARTS, Style, read, rename, render, statements
from postroom.stores.sqlite.statements import FILES as SQLITE_FILES
from postroom.stores.sqlite.statements import INBOX_FILES as SQLITE_INBOX_FILES
from postroom.stores.sqlite.statements import Statements as SQLiteStatements
from postroom.testing.contracts._case import LEASE, MINUTE, NOON, SECOND, a_key_beside, a_message, a_relay, lost, put

DIALECTS = pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mysql"])
STYLES: tuple[Style, ...] = ("qmark", "format", "pyformat", "numeric_dollar", "named")
BOXES = pytest.mark.parametrize("box", ["outbox", "inbox"])
FILES = {"sqlite": SQLITE_FILES, "postgres": POSTGRES_FILES, "mysql": MYSQL_FILES}
INBOX_FILES = {"sqlite": SQLITE_INBOX_FILES, "postgres": POSTGRES_INBOX_FILES, "mysql": MYSQL_INBOX_FILES}
INBOX_CODE = {"inbox.py", "inbox_rows.py"}
"""A message alone is written by a plain INSERT of what it sets, made in the code."""
CODE = {"sqlite": postroom.stores.sqlite, "postgres": postroom.stores.postgres, "mysql": postroom.stores.mysql}
RUNNERS: dict[str, Any] = {"sqlite": SQLiteStatements, "postgres": PostgresStatements, "mysql": MySQLStatements}


def files(dialect: str, box: str) -> Sequence[str]:
    return (FILES if box == "outbox" else INBOX_FILES)[dialect]


@cache
def texts(dialect: str, box: str = "outbox") -> Mapping[str, str]:
    """Every statement of a dialect as written, but for put, which is the handles' own."""
    return {
        name: text
        for file in files(dialect, box)
        for name, text in statements(f"postroom.stores.{dialect}", file).items()
    }


def asked(text: str) -> set[str]:
    """The parameters a statement asks for."""
    return set(render(text, "numeric_dollar", TableNames())[1])


def named_in_code(dialect: str, box: str) -> set[str]:
    """Every statement that the code asks for by a literal name."""
    folder = Path(CODE[dialect].__file__ or "").parent
    modules = [file for file in folder.glob("*.py") if (file.name in INBOX_CODE) == (box == "inbox")]
    calls = (node for file in modules for node in ast.walk(ast.parse(file.read_text())) if type(node) is ast.Call)
    return {
        name.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("_run", "_rows", "run", "rows", "_run_many")
        for name in call.args[1:2]
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }


# ── the files and the code ──


@DIALECTS
def test_every_file_of_statements_is_read(dialect: str) -> None:
    folder = Path(CODE[dialect].__file__ or "").parent
    assert {f"sql/{file.name}" for file in (folder / "sql").iterdir()} == {*FILES[dialect], *INBOX_FILES[dialect]}


@DIALECTS
@BOXES
def test_no_name_stands_twice(dialect: str, box: str) -> None:
    package = f"postroom.stores.{dialect}"
    names = [
        name
        for file in files(dialect, box)
        for name in re.findall(r"^-- name: (\w+)$", read(package, file), re.MULTILINE)
    ]
    assert sorted(names) == sorted(set(names))


@DIALECTS
@BOXES
def test_every_name_the_code_asks_for_exists(dialect: str, box: str) -> None:
    found = named_in_code(dialect, box)
    assert len(found) > (20 if box == "outbox" else 7)
    assert found <= set(texts(dialect, box))


@DIALECTS
@BOXES
def test_every_statement_ends_where_the_next_begins(dialect: str, box: str) -> None:
    for name, text in texts(dialect, box).items():
        bare, _ = render(text, "named", TableNames())
        assert bare.strip(), name
        assert ";" not in bare, name
        assert not bare.rstrip().endswith(","), name


@BOXES
async def test_every_statement_is_used_and_given_just_what_it_asks_for(
    home: Home, monkeypatch: pytest.MonkeyPatch, box: str
) -> None:
    given: dict[str, set[frozenset[str]]] = {}

    def noted(real: Any) -> Any:
        def run(self: Any, connection: Any, name: str, /, **parameters: Any) -> Any:
            given.setdefault(name, set()).add(frozenset(parameters))
            return real(self, connection, name, **parameters)

        return run

    def noted_by_row(real: Any) -> Any:
        """The name, then the rows, at the end."""

        def run(*args: Any) -> Any:
            *_, name, rows = args
            given.setdefault(name, set()).update(map(frozenset, rows))
            return real(*args)

        return run

    kind = RUNNERS[home.dialect]
    monkeypatch.setattr(kind, "run", noted(kind.run))
    for name in {"run_many", "each"} & set(vars(kind)):
        monkeypatch.setattr(kind, name, noted_by_row(getattr(kind, name)))
    await (a_whole_life if box == "outbox" else an_inboxs_life)(home)
    assert set(given) == set(texts(home.dialect, box))
    assert given == {name: {frozenset(asked(text))} for name, text in texts(home.dialect, box).items()}


async def an_inboxs_life(home: Home) -> None:
    """Everything an inbox's store can do, once at least."""
    async with home.open() as store:
        await store.schema.migrate()
    delivery = Delivery(a_message(), "shop", "orders")
    async with open_store(home.url) as opened:
        inbox = opened.inbox
        assert await inbox.failed("billing", delivery.identity, "OOPS", "no luck") == 1
        await inbox.bury("billing", delivery, "OOPS", "no luck")
        assert [known.outcome for known in await inbox.known(KnownQuery())] == ["dead"]
        assert await inbox.requeue(DeadQuery()) == 1
        async with inbox.transaction() as tx:
            assert await tx.remember("billing", [delivery.identity])
            await tx.unbury("billing", [delivery.identity])
        assert list(await inbox.dead(DeadQuery())) == []
        assert await inbox.counts() == {"billing": {"handled": 1}}
        assert await inbox.purge("billing", utcnow() + MINUTE) == 1


async def a_whole_life(home: Home) -> None:
    """Everything a store can do, once at least."""
    async with home.open() as store:
        await store.schema.migrate()
        await store.lanes.join(RelayInfo(owner="relay-a", name="a"))
        await store.lanes.relays()
        await store.lanes.all()
        await put(store, *"abcdefghij")
        await store.outbox.put([a_message(key="later", not_before=NOON + MINUTE)])
        home.sql("INSERT INTO outbox (type, key) VALUES ('order.paid', 'a')")
        relay = await a_relay(store)
        await store.outbox.peek(relay.lanes)
        claims = await relay.claim()
        ways: Iterator[Verdict] = cycle([Published(), Expired(), Buried("DEAD"), Retry(SECOND, "AGAIN")])
        # Of the claim with two messages, one is published and one unsent: it is recorded message by message.
        verdicts = {claim.messages[0].seq: Published() if len(claim.messages) > 1 else next(ways) for claim in claims}
        settlements = [Settlement(claim, verdicts) for claim in claims]
        await store.outbox.settle(settlements, now=NOON)
        await store.outbox.settle(settlements, now=NOON)
        await put(store, *"abcdefghij")
        await relay.claim(now=NOON + 10 * SECOND)
        await store.outbox.claim("relay-a", relay.lanes, limit=100, doubtful=relay.lanes, now=NOON + 2 * MINUTE)
        await store.lanes.renew("relay-a", relay.lanes, lease=LEASE, now=NOON)
        await store.lanes.release("relay-a", relay.lanes)
        await store.lanes.take("relay-b", limit=64, lease=LEASE, lost=lost, now=NOON + timedelta(days=1))
        await store.ops.counts()
        await store.ops.find(Query())
        await store.ops.ids_between(UUID(int=0), UUID(int=1), limit=1)
        await store.ops.requeue(Query())
        await store.ops.discard(Query())
        await store.lanes.leave("relay-a")
        await beside_a_waiting_key(store)


async def beside_a_waiting_key(store: Store) -> None:
    """A key waits, and another one of its lane goes on, until there is nothing left to walk to."""
    relay = await a_relay(store, "relay-c", now=NOON + timedelta(days=2))
    beside = await a_key_beside(relay, "waits")
    (head,) = await put(store, "waits")
    await relay.settle_each(await relay.claim(), {head: Retry(60 * MINUTE, "AGAIN")})
    await put(store, "waits", beside)
    assert len(await relay.seqs()) == 1
    await relay.store.outbox.claim(relay.owner, relay.lanes, limit=0, doubtful=relay.lanes)
    await store.ops.discard(Query(key=beside))
    assert await relay.seqs() == []


# ── the two dialects ──

ONLY_SQLITE = {"give_hash", "free_lane", "walk", "due_holds", "behind", "shelve"}
"""SQLite hashes in the claim what strangers wrote, and makes a claim of several small steps in its own process."""
ONLY_POSTGRES = {"lock_mine", "lock_lanes", "still", "line", "walk_past", "claim_line", "shelve_held"}
"""PostgreSQL locks lanes, and looks again behind the lock; SQLite's whole transaction is the lock. And it has a shorter way
for lanes where nothing waits."""
OTHER_PARAMETERS: dict[str, tuple[set[str], set[str]]] = {
    # One lane, one message or one claim at a time, against all at once.
    "let_go": ({"lane"}, {"lanes"}),
    "renew": ({"lease_until"}, {"epochs", "lease", "now"}),
    "release": ({"lane", "epoch"}, {"lanes", "epochs"}),
    "drop_orphans": ({"lane", "owner", "epoch"}, {"lanes"}),
    "fence": ({"id"}, {"ids", "whole", "now"}),
    "expire": ({"seq"}, {"seqs"}),
    "bury": ({"seq", "code", "error", "park"}, {"verdicts"}),
    "retry": ({"seq", "due_at", "code", "error", "spent"}, {"verdicts"}),
    # The lease's end is computed where the clock is.
    "take": ({"lease_until"}, {"lease"}),
    "lift_due": ({"lane", "limit"}, {"lanes", "want"}),
    # One statement looks and claims on PostgreSQL.
    "claim": (
        {"lane", "epoch", "seqs"},
        {"lanes", "epochs", "limit", "want", "reach", "capped", "ceilings"},
    ),
}
OTHER_GUARDS: dict[str, tuple[set[str], set[str]]] = {
    # PostgreSQL has locked its own lanes before.
    "drop_orphans": ({"owner", "epoch"}, set()),
    # On SQLite these two stand in free_lane and due_holds.
    "claim": (set(), {"nothing in flight", "the wait is over"}),
    # On PostgreSQL it publishes what was sent whole.
    "fence": (set(), {"open"}),
    # On PostgreSQL it stands in still, behind the lock.
    "matching": ({"nothing in flight, nothing of another status"}, set()),
}


def test_the_dialects_have_the_same_statements_but_for_these() -> None:
    sqlite, postgres = set(texts("sqlite")), set(texts("postgres"))
    assert sqlite - postgres == ONLY_SQLITE
    assert postgres - sqlite == ONLY_POSTGRES


def test_the_inbox_has_the_same_statements_in_both_dialects_and_sqlite_is_told_the_time() -> None:
    sqlite, postgres = texts("sqlite", "inbox"), texts("postgres", "inbox")
    assert set(sqlite) == set(postgres)
    assert {name: asked(sqlite[name]) - {"now"} for name in sqlite} == {
        name: asked(postgres[name]) for name in postgres
    }


def in_both() -> list[str]:
    return sorted(set(texts("sqlite")) & set(texts("postgres")))


@pytest.mark.parametrize("name", in_both())
def test_a_name_asks_for_the_same_in_both_dialects_but_for_these(name: str) -> None:
    sqlite, postgres = asked(texts("sqlite")[name]), asked(texts("postgres")[name])
    assert (sqlite - postgres, postgres - sqlite) == OTHER_PARAMETERS.get(name, (set(), set()))


@pytest.mark.parametrize("name", in_both())
def test_a_name_guards_the_same_in_both_dialects_but_for_these(name: str) -> None:
    sqlite, postgres = (
        {guard.strip() for guard in re.findall(r"-- guard: (.+)$", texts(dialect)[name], re.MULTILINE)}
        for dialect in ("sqlite", "postgres")
    )
    assert (sqlite - postgres, postgres - sqlite) == OTHER_GUARDS.get(name, (set(), set()))


# On PostgreSQL one statement looks and claims, and one fences and publishes.
@pytest.mark.parametrize("name", sorted({*in_both()} - {"claim", "fence"}))
def test_a_name_does_the_same_to_the_same_table_in_both_dialects(name: str) -> None:
    done = {dialect: deed(texts(dialect)[name]) for dialect in ("sqlite", "postgres")}
    assert done["sqlite"] == done["postgres"]


def deed(text: str) -> tuple[str, str | None]:
    """The verb, and the table that it writes."""
    verb, *_ = re.findall(r"^(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b", text, re.MULTILINE)
    written = re.search(rf"^{verb} (outbox\w*)", text, re.MULTILINE)
    return verb, written[1] if written else None


@pytest.mark.parametrize("name", ["find", "claimed"])
def test_a_message_has_the_same_columns_in_the_same_order_everywhere(name: str) -> None:
    columns = (
        "id, type, key, aggregate, topic, body, content_type, headers, correlation_id, causation_id, "
        "traceparent, idempotency_key, time, expires_at"
    )
    sources = {"find": [texts(dialect)["find"] for dialect in FILES]}
    sources["claimed"] = [texts("sqlite")["claimed"]]
    sources["claimed"] += [texts("postgres")[each] for each in ("claim", "line", "claimed")]
    sources["claimed"] += [texts("mysql")["claimed"], texts("mysql")["line"]]
    for text in sources[name]:
        bare = re.sub(r"--.*", "", text.replace("o.", "").replace("`", ""))
        bare = " ".join(bare.split())
        bare = re.sub(r"coalesce\(\S+\(payload\b.*?\), body\)|CAST\((id) AS text\)", r"\1", bare)
        bare = re.sub(r"topic, , content_type", "topic, body, content_type", bare)
        bare = re.sub(r"date_format\(CASE WHEN (\w+) >=.*?Z'\)|CASE WHEN (\w+) >=.*? END", r"\1\2", bare)
        bare = re.sub(r"to_char\( ?CASE WHEN (\w+).*?\"Z\"'\)|CASE WHEN (\w+) BETWEEN.*? END", r"\1\2", bare)
        assert columns in bare


def guards_of(dialect: str) -> set[str]:
    found = re.findall(r"-- guard: (.+)$", "\n".join(texts(dialect).values()), re.MULTILINE)
    return {guard.strip() for guard in found}


def test_mysql_has_every_guard_that_postgres_has() -> None:
    """In more and shorter statements, so that names cannot be compared one by one."""
    assert guards_of("mysql") == guards_of("postgres") - {"no key waits"}


@pytest.mark.parametrize(
    "name", ["counts", "oldest", "parked", "find", "matching", "still", "lock_lanes", "peek", "lost"]
)
def test_mysql_means_the_same_as_postgres_by_a_question(name: str) -> None:
    assert deed(texts("mysql")[name]) == deed(texts("postgres")[name])


# ── render ──

names = st.from_regex(rf"[a-z_][a-z0-9_]{{0,{NAME_MAX - 1}}}", fullmatch=True)
prefixes = names.filter(lambda name: not name.endswith(("inbox", "inbox_dead")))
tables = st.builds(TableNames, prefix=prefixes, schema=st.none() | names)
parameters = st.from_regex(r"[a-z][a-z_]{0,12}", fullmatch=True).filter(lambda name: not name.startswith("outbox"))


@given(tables, st.sampled_from(sorted(PARTS)))
def test_our_tables_get_the_users_names(names: TableNames, suffix: str) -> None:
    assert rename(f"SELECT 1 FROM outbox{suffix} x", names) == f"SELECT 1 FROM {names.qualified(PARTS[suffix])} x"


@given(tables, st.sampled_from(sorted(INBOX_PARTS)))
def test_the_inboxs_tables_get_the_users_names_too(names: TableNames, suffix: str) -> None:
    assert rename(f"SELECT 1 FROM inbox{suffix} x", names) == f"SELECT 1 FROM {names.qualified(INBOX_PARTS[suffix])} x"


@given(tables)
def test_our_indexes_get_the_prefix_but_never_a_schema(names: TableNames) -> None:
    renamed = rename("CREATE INDEX outbox_line ON outbox (lane)", names)
    assert renamed == f'CREATE INDEX "{names.prefix}_line" ON {names.qualified()} (lane)'


@given(tables)
def test_words_that_only_end_like_ours_are_left_alone(names: TableNames) -> None:
    text = "SELECT my_outbox, inoutbox FROM theirs"
    assert rename(text, names) == text


@given(tables, st.integers(1, 1024))
def test_the_number_of_lanes_is_put_in_and_no_other_number(names: TableNames, lanes: int) -> None:
    text = "SELECT 64, 640, 164 /* lanes */, n % 64 /* lanes */ - 1"
    assert rename(text, names, lanes) == f"SELECT 64, 640, 164 /* lanes */, n % {lanes} - 1"


@given(st.sampled_from(STYLES), st.lists(parameters, min_size=1, max_size=6))
def test_each_style_lists_its_parameters_in_the_order_they_stand(style: Style, given: list[str]) -> None:
    sql, order = render("SELECT " + ", ".join(f":{name}" for name in given), style, TableNames())
    unique = list(dict.fromkeys(given))
    expected = {
        "qmark": ", ".join("?" for _ in given),
        "format": ", ".join("%s" for _ in given),
        "pyformat": ", ".join(f"%({name})s" for name in given),
        "numeric_dollar": ", ".join(f"${unique.index(name) + 1}" for name in given),
        "named": ", ".join(f":{name}" for name in given),
    }
    orders = {"qmark": given, "format": given, "numeric_dollar": unique, "pyformat": [], "named": []}
    assert sql == "SELECT " + expected[style]
    assert list(order) == orders[style]


@pytest.mark.parametrize("style", STYLES)
def test_casts_slices_and_times_are_no_parameters(style: Style) -> None:
    text = "SELECT id::text, '12:30:00', a[1:2] FROM outbox"
    sql, order = render(text, style, TableNames())
    assert sql == text.replace("outbox", '"outbox"')
    assert order == ()


@pytest.mark.parametrize(
    ("style", "sign"), [("qmark", "%"), ("numeric_dollar", "%"), ("named", "%"), ("format", "%%"), ("pyformat", "%%")]
)
def test_a_percent_sign_is_doubled_only_where_the_driver_reads_it(style: Style, sign: str) -> None:
    sql, _ = render("SELECT 7 % 2, '%' FROM outbox WHERE seq = :seq", style, TableNames())
    assert sql.startswith(f"SELECT 7 {sign} 2, '{sign}' FROM")


@pytest.mark.parametrize("style", STYLES)
def test_comments_are_for_the_reader_alone(style: Style) -> None:
    text = "-- an outbox of :mine, 100 %\nSELECT seq  -- guard: the outbox's :own\nFROM outbox"
    assert render(text, style, TableNames(prefix="post")) == ('SELECT seq\nFROM "post"', ())


@DIALECTS
@pytest.mark.parametrize("style", STYLES)
def test_every_statement_renders_in_every_style_with_no_name_of_ours_left(dialect: str, style: Style) -> None:
    names = TableNames(prefix="zz", schema="yy")
    for text in [*texts(dialect).values(), *texts(dialect, "inbox").values()]:
        sql, _ = render(text, style, names)
        assert re.findall(r"\b(?:outbox|inbox)", sql) == []
        assert "--" not in sql
        left = re.findall(r"(?<![:\w]):[a-z_]+", sql)
        assert (left == []) == (style != "named" or not asked(text))
