"""What RabbitMQ's answer means for the message. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

import aiormq
from aiormq import exceptions

from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable
from postroom.errors import TransportError
from postroom.transports.amqp.connection import Blocked
from postroom.transports.refusals import REFUSALS, not_opened, why_not

SENT = Sent()
NO_TOPIC = Rejected("NO_TOPIC", "neither the message, nor its route, nor the URL names a queue to send it to")
UNANSWERED = Failed("TIMEOUT", "no answer in time", unknown=True)
CUT_OFF = Failed("CONNECTION_LOST", "the connection was lost before it was confirmed", unknown=True)
GONE = Unavailable("CONNECTION_LOST", "the connection was lost")
NACKED = Unavailable("NACKED", "the broker did not take it: a queue is full, or could not store it")
BLOCKED = Unavailable("BLOCKED", "the broker takes no messages for now: it is short of memory or disk")

_TOO_LARGE = re.compile(r"message size (\d+) (?:is )?larger than (?:configured )?max size (\d+)")
_TOPIC_REFUSED = re.compile(r"access to topic '(.*)' in exchange .* refused", re.DOTALL)


STEPS = "declare a queue, bind it to the exchange, then send"
"""In this order: what comes before there is a queue has nowhere to go."""


def unroutable(routing_key: str, exchange: str, *, of_the_url: bool) -> Outcome:
    """It came back: no queue takes it. Where the URL alone decided that, it says nothing of the message, so it waits."""
    if exchange:
        sentence = f"no queue is bound to exchange {exchange!r} for routing key {routing_key!r}: {STEPS}"
    else:
        sentence = f"there is no queue {routing_key!r}"
    return Unavailable("UNROUTABLE", sentence) if of_the_url else Rejected("UNROUTABLE", sentence)


@dataclass(frozen=True, slots=True)
class Closed:
    """Why the broker closed a channel, and whom that concerns: none of the fields set, one knows not whom."""

    outcome: Outcome
    """What is said of the message that is found to be at fault."""
    of_all: bool = False
    """It is true of everything sent there."""
    larger_than: int | None = None
    """It is true of every body larger than this."""
    routing_key: str | None = None
    """It is true of every message with this routing key."""


def closed_by(reason: BaseException | None) -> Closed:
    """What a closed channel means. The broker names no message: it closes the channel for one, and with it goes all else."""
    said = words_of(reason)
    if isinstance(reason, exceptions.ChannelNotFoundEntity):
        return Closed(Unavailable("NO_EXCHANGE", said), of_all=True)
    if isinstance(reason, exceptions.ChannelAccessRefused):
        if topic := _TOPIC_REFUSED.search(said):
            return Closed(Failed("NOT_AUTHORIZED", said), routing_key=topic[1])
        return Closed(Unavailable("NOT_AUTHORIZED", said), of_all=True)
    if size := _TOO_LARGE.search(said):
        return Closed(Rejected("PAYLOAD_TOO_LARGE", said), larger_than=int(size[2]))
    if isinstance(reason, exceptions.ChannelPreconditionFailed):
        return Closed(Rejected("PRECONDITION_FAILED", said))
    return Closed(Failed("CHANNEL_CLOSED", said, unknown=True))


def away(reason: BaseException, shown: str) -> Unavailable:
    """Why nobody could be reached."""
    said = words_of(reason)
    if isinstance(reason, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
        return Unavailable("AUTHENTICATION_FAILED", said)
    if isinstance(reason, exceptions.ConnectionNotAllowed):
        return Unavailable("NOT_ALLOWED", said)
    if (why := why_not(reason)) is not None:
        return Unavailable(why, said)
    if isinstance(reason, Blocked):
        return BLOCKED
    if isinstance(reason, TimeoutError):
        return Unavailable("TIMEOUT", f"no answer from {shown}")
    return Unavailable("CONNECT_FAILED", said or f"no answer from {shown}")


def not_let_in(reason: BaseException, shown: str) -> TransportError:
    """The error for a connection that was not made: whose fault it is, and what to do."""
    found = away(reason, shown)
    return not_opened(found.code, f"No RabbitMQ lets us in at {shown}: {found.error}; {_remedy(found.code)}.")


def _remedy(code: str) -> str:
    if code == "NOT_ALLOWED":
        return "correct the vhost, which is written before the ?, or give the user the right to it"
    return "correct the URL" if code in REFUSALS else "start it, or correct the URL"


def words_of(reason: BaseException | None) -> str:
    """What the broker, or the system, said, without the name of the exception around it."""
    if reason is None:
        return ""
    if isinstance(reason, aiormq.AMQPError):
        return " ".join(str(word) for word in reason.args if isinstance(word, str)) or reason.reason
    return str(reason) or type(reason).__name__
