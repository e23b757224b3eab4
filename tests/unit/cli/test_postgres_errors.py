from __future__ import annotations

import socket

import pytest
from tests.unit.cli.running import Desk

COMMANDS = [["init"], ["put", "a.b"], ["status"], ["list"]]


@pytest.fixture
def nobody() -> str:
    """A host and port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_server_that_is_away_is_one_sentence(empty: Desk, command: list[str], nobody: str) -> None:
    refused = empty(*command, store=f"postgresql://app:s3cr3t@{nobody}/shop")
    refused.refuses(nobody.rpartition(":")[2], code=1)
    assert "s3cr3t" not in refused.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_wrong_password_is_one_sentence_and_not_shown(
    empty: Desk, command: list[str], postgres_locked_url: str
) -> None:
    refused = empty(*command, store=postgres_locked_url.replace("the-right-password", "s3cr3t-wrong"))
    refused.refuses("password", code=1)
    assert "s3cr3t" not in refused.err


@pytest.mark.parametrize("password", ["s3cr3t%zz", "s3cr3t:@/s3cr3t", "s3cr3t[", "s3cr3t s3cr3t"])
def test_a_password_that_breaks_the_url_is_not_shown(empty: Desk, password: str) -> None:
    refused = empty("status", store=f"postgresql://app:{password}@127.0.0.1:1/shop")
    assert refused.code in (1, 2)
    assert refused.err.startswith("error: ")
    assert len(refused.err.splitlines()) == 1
    assert "s3cr3t" not in refused.err


@pytest.mark.parametrize("command", COMMANDS[1:], ids=" ".join)
def test_missing_tables_are_said_with_the_command_to_type(
    empty: Desk, command: list[str], postgres_database: str
) -> None:
    empty(*command, store=postgres_database).refuses("postroom init --store", code=1)


def test_a_database_that_is_not_there_is_one_sentence(empty: Desk, postgres_database: str) -> None:
    empty("init", store=f"{postgres_database}_nowhere").refuses("nowhere", code=1)


def test_a_message_written_is_a_message_listed(empty: Desk, postgres_database: str) -> None:
    made = empty("init", "--lanes", "8", store=postgres_database)
    assert (made.code, made.err) == (0, "")
    assert "Created the tables" in made.out
    assert "8 lanes" in made.out
    assert "Nothing to do" in empty("init", store=postgres_database).out
    put = empty("put", "order.paid", "--key", "order-7", "--data", '{"n": 1}', store=postgres_database)
    assert empty("put", "--jsonl", "-", stdin=b'{"type": "a"}\n' * 2500, store=postgres_database).code == 0
    assert empty("status", "--json", store=postgres_database).objects()[0]["pending"] == 2501
    (listed,) = empty("list", "--json", "--payload", "--key", "order-7", store=postgres_database).objects()
    assert (listed["id"], listed["data"]) == (put.out.strip(), {"n": 1})


def test_a_bad_line_takes_back_all(empty: Desk, postgres_database: str) -> None:
    assert empty("init", store=postgres_database).code == 0
    known = empty("put", "a.b", store=postgres_database).out.strip()
    lines = b'{"type": "a"}\n' * 2500 + f'{{"type": "b", "id": "{known}"}}'.encode()
    empty("put", "--jsonl", "-", stdin=lines, store=postgres_database).refuses("already in the outbox", code=1)
    assert empty("status", "--json", store=postgres_database).objects()[0]["pending"] == 1


def test_tables_in_a_schema_of_their_own(empty: Desk, postgres_database: str) -> None:
    named = ["--schema", "post", "--table-prefix", "letters"]
    assert empty("init", *named, store=postgres_database).code == 0
    assert empty("put", "a.b", *named, store=postgres_database).code == 0
    assert empty("status", "--json", *named, store=postgres_database).objects()[0]["pending"] == 1
