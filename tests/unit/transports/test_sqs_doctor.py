"""A queue says which of its settings weaken the promise; a good one says nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.servers.queues import client_of, fresh_queue, queue_url, with_queue

from postroom.errors import ConfigError
from postroom.transports.sqs.doctor import weaknesses

FINE: dict[str, object] = {"VisibilityTimeout": 30}


@pytest.fixture
def redrive(sqs_url: str) -> Iterator[str]:
    """The ARN of a queue for dead letters."""
    with fresh_queue(sqs_url) as dead:
        answer = client_of(sqs_url).get_queue_attributes(QueueUrl=queue_url(sqs_url, dead), AttributeNames=["QueueArn"])
        yield answer["Attributes"]["QueueArn"]


def policy(arn: str, most: int = 10) -> str:
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": most})


async def test_a_good_queue_has_no_weakness(sqs_url: str, redrive: str) -> None:
    with fresh_queue(sqs_url, FINE | {"RedrivePolicy": policy(redrive)}) as queue:
        assert await weaknesses(with_queue(sqs_url, queue)) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"MessageRetentionPeriod": 3600}, "deletes unreceived messages after 1h"),
        ({"VisibilityTimeout": 5}, "gives a message to another receiver after 5s"),
        ({"VisibilityTimeout": 7200}, "hides for 2h what a dead receiver had in flight"),
    ],
)
async def test_a_weak_setting_is_named_with_its_remedy(
    sqs_url: str, redrive: str, setting: dict[str, int], said: str
) -> None:
    with fresh_queue(sqs_url, FINE | {"RedrivePolicy": policy(redrive)} | setting) as queue:
        (weakness,) = await weaknesses(with_queue(sqs_url, queue))
    assert said in weakness
    assert "; set " in weakness


async def test_a_standard_queue_without_a_place_for_dead_letters_has_two_weaknesses(sqs_url: str) -> None:
    with fresh_queue(sqs_url, FINE, fifo=False) as queue:
        order, redrive = await weaknesses(with_queue(sqs_url, queue))
    assert "it keeps no order" in order
    assert "no redrive policy" in redrive


async def test_a_message_put_aside_too_soon_is_a_weakness(sqs_url: str, redrive: str) -> None:
    with fresh_queue(sqs_url, FINE | {"RedrivePolicy": policy(redrive, most=2)}) as queue:
        (weakness,) = await weaknesses(with_queue(sqs_url, queue))
    assert "when it was received 2 times" in weakness


async def test_a_queue_that_is_not_there_is_an_error(sqs_url: str) -> None:
    with pytest.raises(ConfigError, match="has no such queue"):
        await weaknesses(with_queue(sqs_url, "ordrs"))
    assert await weaknesses(sqs_url) == [], "where no queue is named there is nothing to ask"
