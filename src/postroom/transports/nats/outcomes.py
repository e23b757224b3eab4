"""What the stream's answer means for the message. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from postroom.contracts.transport import Failed, Outcome, Rejected, Sent, Unavailable
from postroom.transports.nats.url import covers

NO_SUBJECT = Rejected("NO_TOPIC", "neither the message, nor its route, nor the URL names a subject")
UNANSWERED = Failed("TIMEOUT", "no answer in time", unknown=True)
BROKEN = Failed("CONNECTION_BROKEN", "the connection broke before the answer came", unknown=True)
NO_RESPONDERS = Unavailable("NO_RESPONDERS", "no stream answered for its subject; nothing was stored")
LOST = Unavailable("CONNECT_FAILED", "the connection broke before its turn")

_NO_RESPONDERS_STATUS = "503"
_TOO_LARGE = {10054, 10097}
_TOO_LARGE_FOR_ANY = "message to large"
_OTHER_STREAM = 10060
_NOT_STORED = 10077
_SEALED = 10109
_NO_ROOM = {10002, 10023, 10028, 10047}
"""The account, or the server, has used up what it may."""
_TOO_MANY, _SERVERS_OWN = 429, 500
"""From here on NATS speaks of itself, in the numbers of HTTP."""


def outcome_of(data: bytes, headers: Mapping[str, str] | None, stream: str) -> Outcome | None:
    """What the stream says of a message; None: that was somebody else's word, and the stream's is still to come.

    Whoever listens to a subject may answer what comes there. Only a stream's own confirmation, with its name and a place in
    it, means that the message is stored; also when it says `duplicate`: then it was there before."""
    if headers and headers.get("Status") == _NO_RESPONDERS_STATUS:
        return NO_RESPONDERS
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    if isinstance(error := answer.get("error"), dict) and "code" in error:
        return _refused(error)
    place = answer.get("seq")
    return Sent(place) if answer.get("stream") == stream and type(place) is int and place > 0 else None


def _refused(error: Mapping[str, Any]) -> Outcome:
    number, said = error.get("err_code"), str(error.get("description", ""))
    if number in _TOO_LARGE:
        return Rejected("PAYLOAD_TOO_LARGE", said)
    if number == _OTHER_STREAM:
        return Rejected("UNROUTABLE", f"its subject belongs to another stream ({said})")
    if number == _NOT_STORED:
        if _TOO_LARGE_FOR_ANY in said:
            return Rejected("PAYLOAD_TOO_LARGE", said)
        # A stream without room, a disk that is full: that is no message's fault.
        return Unavailable("STREAM_FULL" if "maximum" in said else "NOT_STORED", said)
    if number in _NO_ROOM:
        return Unavailable("STREAM_FULL", said)
    if number == _SEALED:
        return Unavailable("STREAM_SEALED", said)
    code = error["code"]
    is_its_own = isinstance(code, int) and (code == _TOO_MANY or code >= _SERVERS_OWN)
    name = f"NATS_{number or code}"
    return Unavailable(name, said) if is_its_own else Failed(name, said)


def is_full(outcome: Outcome) -> bool:
    """Had the stream no room for it?"""
    return isinstance(outcome, Unavailable) and outcome.code == "STREAM_FULL"


def never_fits(outcome: Outcome, size: int, room: int) -> Rejected | None:
    """What to say of a message of *size* bytes that a full stream refused, and that would not fit into an empty one, which
    holds *room* bytes (0 or less: any number); None: it may fit later."""
    if not is_full(outcome) or room <= 0 or size <= room:
        return None
    return Rejected("PAYLOAD_TOO_LARGE", f"with its headers it has {size:,} bytes, and the whole stream holds {room:,}")


def unanswered_for(subject: str, *, of_the_url: bool, stream: str, patterns: Sequence[str] | None) -> Outcome:
    """What it means that nobody answered for this subject, the stream having *patterns*, or being gone (None).

    Trouble with what the URL names is trouble with the route: it says nothing of the message, so it waits."""
    if patterns is None:
        return Unavailable("NO_STREAM", f"there is no stream {stream!r}; create it, or correct the URL")
    if covers(patterns, subject):
        return NO_RESPONDERS
    sentence = f"the stream {stream!r} does not take the subject {subject!r}"
    return Unavailable("UNROUTABLE", sentence) if of_the_url else Rejected("UNROUTABLE", sentence)


def not_allowed(subject: str, said: str, *, of_the_url: bool) -> Outcome:
    """We may not publish there."""
    sentence = f"we may not publish to {subject!r} ({said})"
    return Unavailable("NOT_AUTHORIZED", sentence) if of_the_url else Failed("NOT_AUTHORIZED", sentence)
