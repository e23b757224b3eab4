"""What RabbitMQ says when it closes a channel or refuses a connection, and what that means. Its sentences are those it uses."""

from __future__ import annotations

import pytest
from aiormq import exceptions

from postroom.contracts.transport import Failed, Rejected, Unavailable
from postroom.transports.amqp.outcomes import away, closed_by, unroutable


def test_a_message_that_is_too_large_is_known_by_the_limit_that_is_told() -> None:
    for said in (
        "PRECONDITION_FAILED - message size 1048577 is larger than configured max size 1048576",
        "PRECONDITION_FAILED - message size 1048577 larger than max size 1048576",
    ):
        closed = closed_by(exceptions.ChannelPreconditionFailed(said))
        assert isinstance(closed.outcome, Rejected)
        assert (closed.larger_than, closed.of_all) == (1_048_576, False)


def test_a_missing_exchange_concerns_all_and_kills_none() -> None:
    closed = closed_by(exceptions.ChannelNotFoundEntity("NOT_FOUND - no exchange 'orders' in vhost '/'"))
    assert closed.outcome == Unavailable("NO_EXCHANGE", "NOT_FOUND - no exchange 'orders' in vhost '/'")
    assert closed.of_all


def test_a_topic_that_may_not_be_written_to_concerns_its_routing_key_alone() -> None:
    said = "ACCESS_REFUSED - access to topic 'order.paid' in exchange 'x' in vhost '/' refused for user 'relay'"
    closed = closed_by(exceptions.ChannelAccessRefused(said))
    assert isinstance(closed.outcome, Failed)
    assert (closed.routing_key, closed.of_all) == ("order.paid", False)


def test_an_exchange_that_may_not_be_written_to_concerns_all() -> None:
    said = "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'relay'"
    closed = closed_by(exceptions.ChannelAccessRefused(said))
    assert isinstance(closed.outcome, Unavailable)
    assert closed.of_all


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (exceptions.ChannelPreconditionFailed("PRECONDITION_FAILED - something else"), Rejected),
        (exceptions.ChannelClosed(541, "INTERNAL_ERROR"), Failed),
        (None, Failed),
    ],
)
def test_what_names_nobody_is_found_out_one_by_one(reason: BaseException | None, kind: type) -> None:
    closed = closed_by(reason)
    assert isinstance(closed.outcome, kind)
    assert (closed.of_all, closed.larger_than, closed.routing_key) == (False, None, None)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (exceptions.ProbableAuthenticationError("ACCESS_REFUSED - Login was refused"), "AUTHENTICATION_FAILED"),
        (exceptions.ConnectionNotAllowed("NOT_ALLOWED - vhost shop not found"), "NOT_ALLOWED"),
        (TimeoutError(), "TIMEOUT"),
        (exceptions.AMQPConnectionError(111, "Connect call failed"), "CONNECT_FAILED"),
        (ConnectionResetError("reset"), "CONNECT_FAILED"),
    ],
)
def test_why_nobody_could_be_reached(reason: BaseException, code: str) -> None:
    outcome = away(reason, "amqp://broker")
    assert outcome.code == code
    assert outcome.error


def test_a_return_is_the_messages_fault_unless_the_url_alone_decided() -> None:
    sentence = "no queue is bound to exchange 'orders' for routing key 'a': declare a queue, bind it to the exchange, then send"
    assert unroutable("a", "orders", of_the_url=False) == Rejected("UNROUTABLE", sentence)
    assert unroutable("a", "", of_the_url=True) == Unavailable("UNROUTABLE", "there is no queue 'a'")
