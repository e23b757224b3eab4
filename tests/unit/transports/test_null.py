"""The transport that throws everything away. The contract is about what arrives; here nothing does, so these are the few
of its promises that can be seen without a receiver."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.cli.running import Desk

from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.transports import open_publisher

SECOND = timedelta(seconds=1)


async def test_every_message_is_sent_and_an_empty_batch_is_an_empty_answer() -> None:
    publisher = open_publisher("null://")
    batch = [Envelope(Message("order.paid", key="a", data=number), "orders") for number in range(3)]
    assert await publisher.publish(batch, timeout=SECOND) == [Sent()] * 3
    assert await publisher.publish([], timeout=SECOND) == []


async def test_closing_twice_is_fine() -> None:
    publisher = open_publisher("null://")
    await publisher.close()
    await publisher.close()


async def test_it_declares_that_nothing_survives() -> None:
    assert not open_publisher("null://").capabilities.durable


async def test_it_warns_when_it_is_opened(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="postroom"):
        await open_publisher("null://").open()
    assert "throws messages away" in caplog.text


def test_a_relay_to_it_says_so_on_stderr(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk("init").code == 0
    assert desk("put", "order.paid").code == 0
    drained = desk("relay", "--to", "null://", "--drain")
    assert drained.code == 0
    assert ": null:// throws messages away" in drained.err
    (status,) = desk("status", "--json").objects()
    assert status["published"] == 1
