"""The INSERT for MariaDB and MySQL: what travels, and in how many statements."""

from __future__ import annotations

from datetime import UTC, datetime

from postroom.config.tables import TableNames
from postroom.message import Message
from postroom.stores.sql.insert import CHUNK_BYTES, CHUNK_ROWS, put_in_mysql

TABLES = TableNames(prefix="post", schema="shop")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_only_what_is_set_is_named_and_names_are_in_backquotes() -> None:
    ((sql, parameters),) = put_in_mysql(TABLES, [Message("order.paid", key="a", data=1, time=NOON)])
    assert sql == "INSERT INTO `shop`.`post` (`type`, `key`, `id`, `time`, `payload`) VALUES (%s, %s, %s, %s, %s)"
    assert (*parameters[:2], *parameters[3:]) == ("order.paid", "a", "2026-11-15 12:00:00.000000", "1")


def test_everything_on_the_wire_is_ascii() -> None:
    messages = [Message("grüße", key="ключ", body=bytes(range(256)), headers={"tenant": "Zoë"}), Message("a", data="☃")]
    for sql, parameters in put_in_mysql(TABLES, messages):
        assert sql.isascii()
        assert all(parameter.isascii() for parameter in parameters)


def test_what_a_row_leaves_out_of_a_batch_has_its_default() -> None:
    messages = [Message("a", key="k", data=1), Message("b", body=b"\0")]
    ((sql, parameters),) = put_in_mysql(TableNames(), messages)
    assert sql.endswith("VALUES (%s, %s, %s, %s, %s, DEFAULT), (%s, DEFAULT, %s, %s, DEFAULT, unhex(%s))")
    assert len(parameters) == sql.count("%s")


def test_a_long_list_is_cut_into_statements_in_order() -> None:
    messages = [Message(f"n.{number}") for number in range(2 * CHUNK_ROWS + 1)]
    found = list(put_in_mysql(TableNames(), messages))
    assert [sql.count("(%s") for sql, _ in found] == [CHUNK_ROWS, CHUNK_ROWS, 1]
    written = [text for _, parameters in found for text in parameters if text.startswith("n.")]
    assert written == [message.type for message in messages]


def test_large_bodies_are_cut_by_their_size() -> None:
    messages = [Message("large", body=b"x" * (CHUNK_BYTES // 2)) for _ in range(5)]
    assert [sql.count("(%s") for sql, _ in put_in_mysql(TableNames(), messages)] == [2, 2, 1]


def test_no_messages_are_no_statement() -> None:
    assert list(put_in_mysql(TableNames(), [])) == []
