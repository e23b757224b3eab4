"""`postroom doctor`: each finding a line with its remedy, and an exit code for programs."""

from __future__ import annotations

import psycopg
import pytest
from tests.servers.ports import free_port
from tests.servers.streams import fresh_stream
from tests.unit.cli.inboxes import billing, consume
from tests.unit.cli.running import Desk

from postroom.stores.sqlite.doctor import has_wal_reset_defect

TOKEN = "Zq7XZq7XZq7X"
DEFECT = 1 if has_wal_reset_defect() else 0
"""What is found on any SQLite file, where this Python links such a SQLite."""


def findings(desk: Desk, *options: str, store: str = "sqlite:///shop.db") -> list[list[str]]:
    """What was found at the store and at each broker, without the SQLite defect; the exit code fits."""
    shown = desk("doctor", "--json", *options, store=store)
    objects = shown.objects()
    assert shown.code == (1 if any(each["findings"] for each in objects) else 0), shown
    return [[found for found in each["findings"] if "WAL-reset" not in found] for each in objects]


def test_a_store_where_all_is_well_is_fine(desk: Desk) -> None:
    shown = desk("doctor")
    assert shown.err == ""
    if DEFECT:
        first, defect, last = shown.out.splitlines()
        assert (shown.code, first, last) == (1, "store sqlite:///shop.db", "1 finding")
        assert defect.startswith("  - This Python links SQLite 3.")
        assert "or later" in defect
    else:
        assert (shown.code, shown.out) == (0, "store sqlite:///shop.db\n  fine\nnothing was found\n")


def test_a_store_that_cannot_be_used_is_a_finding(empty: Desk) -> None:
    (missing,) = findings(empty)
    assert missing == ["There is no file shop.db: check the name, or run `postroom init --store sqlite:///shop.db`."]
    assert list(empty.folder.iterdir()) == []
    (empty.folder / "shop.db").touch()
    (no_tables,) = findings(empty)
    assert "`postroom init --store sqlite:///shop.db`" in no_tables[0]
    (away,) = findings(empty, store=f"postgresql://app:s3cr3t@127.0.0.1:{free_port()}/shop")
    assert len(away) == 1
    assert "s3cr3t" not in away[0]
    (memory,) = findings(empty, store="memory://")
    assert "use a database" in memory[0]


def test_messages_that_nobody_sends_and_dead_ones_are_found(desk: Desk) -> None:
    desk("put", "order.paid", "--key", "order-7")
    ((waiting,),) = findings(desk)
    assert waiting.startswith("1 message waits to be sent. 64 of 64 lanes have no live relay")
    assert desk("relay", "--to", "local://builtins:int", "--drain", "--max-attempts", "1").code == 3
    ((dead,),) = findings(desk)
    assert dead.startswith("1 message is dead: see `postroom list --status dead`")


def test_dead_messages_of_an_inbox_are_found(desk: Desk) -> None:
    billing(desk)
    desk(*consume())
    ((dead,),) = findings(desk)
    assert dead.startswith("1 message of the inbox billing is dead")


def test_a_postgres_that_forgets_commits_is_found(empty: Desk, postgres_database: str) -> None:
    assert empty("init", store=postgres_database).code == 0
    (before,) = findings(empty, store=postgres_database)
    assert not any("synchronous_commit" in each for each in before)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET synchronous_commit = off')
    (after,) = findings(empty, store=postgres_database)
    assert [each for each in after if each not in before] == [
        "PostgreSQL has synchronous_commit off: a crash of the server may take what was committed just before; set it on."
    ]


# ── brokers ──


def test_what_weakens_a_stream_is_found_for_both_sides(desk: Desk, nats_url: str) -> None:
    with fresh_stream(nats_url) as stream:
        url = f"{nats_url}/{stream}?subject={stream}.paid"
        _, to, source = findings(desk, "--to", f"{url}&sync=always", "--from", url)
    assert any("1 replica" in each and "use 3" in each for each in to)
    assert any("duplicate_window" in each for each in to)
    assert not any("sync_interval" in each for each in to)
    assert any("sync_interval" in each for each in source)


def test_a_broker_that_is_away_and_a_stream_that_is_not_there_are_findings(desk: Desk, nats_url: str) -> None:
    away = f"nats://app:s3cr3t@127.0.0.1:{free_port()}/ORDERS"
    shown = desk("doctor", "--to", away, "--to", f"{nats_url}/NOWHERE")
    assert (shown.code, shown.err) == (1, "")
    assert "s3cr3t" not in shown.out
    assert "Traceback" not in shown.out
    lines = shown.out.splitlines()
    assert lines[-1] == f"{2 + DEFECT} findings"
    assert "There is no stream 'NOWHERE'" in shown.out
    heads = [line for line in lines[:-1] if not line.startswith("  ")]
    assert [head.split()[0] for head in heads] == ["store", "to", "to"]


def test_of_a_transport_without_a_doctor_nothing_is_known_to_be_asked(desk: Desk) -> None:
    shown = desk("doctor", "--to", "null://", "--from", "memory://shop/orders", "--to", "https://shop.example/hooks")
    assert shown.code == DEFECT
    assert shown.out.count("  nothing is known to be asked of it\n") == 3
    assert [each["asked"] for each in desk("doctor", "--to", "null://", "--json").objects()] == [True, False]


def test_without_to_it_asks_the_brokers_of_the_settings(desk: Desk) -> None:
    routes = '[[routes]]\npattern = "order.*"\nto = "null://"\n[[routes]]\nto = "local://builtins:print"\n'
    (desk.folder / "postroom.toml").write_text(routes)
    asked = desk("doctor", "--json").objects()[1:]
    assert [(each["role"], each["url"]) for each in asked] == [("to", "null://"), ("to", "local://builtins:print")]
    assert [each["url"] for each in desk("doctor", "--json", "--to", "memory://").objects()[1:]] == ["memory://"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "carrier-pigeon://home"], "knows no transport carrier-pigeon://"),
        (["--from", "shop.db"], "must start with a scheme"),
        (["--store", "oracle://db/shop"], "no store oracle://"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_no_url_is_wrong_use(desk: Desk, options: list[str], said: str) -> None:
    desk("doctor", *options).refuses(said, code=2)


def test_doctor_and_relay_do_not_show_the_token_of_a_webhook(desk: Desk) -> None:
    desk("put", "order.paid")
    to = f"http://127.0.0.1:9/services/T0/{TOKEN}?key={TOKEN}"
    (desk.folder / "postroom.toml").write_text(f'[[routes]]\nname = "hooks"\nto = "{to}"\n')
    for command in (
        ["doctor"],
        ["doctor", "--to", to],
        ["doctor", "--json"],
        ["relay", "--to", to, "--health", "wrong"],
    ):
        done = desk(*command)
        assert TOKEN not in done.out + done.err
    assert "http://127.0.0.1:9/services/***/***?key=***" in desk("doctor").out
