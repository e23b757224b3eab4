"""A handler that kills its process is not handled for ever: after its tries it is dead, and nothing else is. On a broker that
counts deliveries, and on Kafka, which does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.scenarios.conftest import url_of
from tests.scenarios.receivers import PATIENCE, Receiver
from tests.servers.streams import fresh_stream
from tests.servers.topics import fresh_topic

from postroom.contracts.transport import Envelope, Sent
from postroom.message import Message
from postroom.transports.kafka import KafkaPublisher

TRIES, KILLED = 3, 9
POISON = 7
MESSAGES = [Message("paid", key=f"k{number % 6}", data=number) for number in range(30)]
APP = f"""
import os
from pathlib import Path
from postroom.inbox import Inbox
from postroom.retry import RetryPolicy

inbox = Inbox("billing", retry=RetryPolicy.parse("0.05", max_attempts={TRIES}))

@inbox.on("paid"BATCH)
def charge(given, tx):
    mark = "?" if "sqlite" in type(tx).__module__ else "%s"
    for message in given if isinstance(given, list) else [given]:
        tx.execute(f"INSERT INTO effects (key, data) VALUES ({{mark}}, {{mark}})", [message.key, message.data])
        if message.data == {POISON}:
            with Path("kills").open("a") as log:
                log.write("x")
            os._exit({KILLED})
"""


@dataclass
class KafkaReceiver(Receiver):
    """The same from a Kafka topic."""

    @property
    def source(self) -> str:
        return f"{self.nats}/{self.stream}?session.timeout.ms=6000&heartbeat.interval.ms=500"

    def send(self, messages: object) -> None:
        async def send() -> None:
            publisher = KafkaPublisher(f"{self.nats}/{self.stream}")
            await publisher.open()
            outcomes = await publisher.publish([Envelope(each) for each in MESSAGES], timeout=timedelta(seconds=60))
            await publisher.close()
            assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes

        asyncio.run(send())


@pytest.fixture(params=["nats", "nats batch", "kafka"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receiver]:
    broker, _, batch = str(request.param).partition(" ")
    (tmp_path / "billing.py").write_text(APP.replace("BATCH", ", batch=10" if batch else ""))
    url = request.getfixturevalue(f"{broker}_url")
    kind = KafkaReceiver if broker == "kafka" else Receiver
    with fresh_topic(url) if broker == "kafka" else fresh_stream(url) as place:
        receiver = kind(url_of("sqlite", request, tmp_path), tmp_path, url, place)
        receiver.prepare()
        receiver.send(MESSAGES)
        yield receiver


@pytest.mark.timeout(300)
def test_a_handler_that_kills_its_process_is_dead_after_its_tries_and_takes_no_other_with_it(
    receiver: Receiver,
) -> None:
    codes, out = list[int](), ""
    while KILLED in codes[-1:] or not codes:
        with receiver.consuming("--until-idle", "8s") as running:
            out, _ = running.communicate(timeout=PATIENCE)
        codes.append(running.returncode)
        assert codes.count(KILLED) <= TRIES + 1, "it is delivered for ever"
    assert codes[-1] == 3, out
    assert [(each.message.data, each.code, each.attempts) for each in receiver.dead()] == [
        (POISON, "CRASH_LOOP", TRIES)
    ]
    # A first delivery costs nothing, so it is not counted; on Kafka every one of these may be a second one.
    kills = TRIES if isinstance(receiver, KafkaReceiver) else TRIES + 1
    assert (receiver.folder / "kills").read_text() == "x" * kills
    assert sorted(number for _, number in receiver.effects()) == [each.data for each in MESSAGES if each.data != POISON]
