"""What the inbox writes in a handler's transaction, and how it tells that another one was first.

MongoDB does not wait for another transaction's document: the write fails at once, and its transaction with it. Whoever
remembers begins anew then, until the other one has ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bson import MaxKey
from pymongo.errors import PyMongoError

from postroom.clock import utcnow
from postroom.contracts.inbox import UNFINISHED
from postroom.contracts.transport import Identity
from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.inbox_rows import kept_source
from postroom.stores.mongo.collections import among, bare
from postroom.stores.mongo.errors import TRANSIENT
from postroom.stores.mongo.server import Document

PATIENCE_SECONDS = 60.0
"""How long somebody waits for a transaction: the server ends those that are older, unless it is told otherwise."""
PAUSE_MAX_SECONDS = 0.1
DUPLICATE_KEY, NO_SUCH_TRANSACTION = 11000, 251
OPEN = ("failing", "requeued")
"""The outcomes that are none: it may be handled again."""
MADE: Document = {"$ifNull": ["$attempts", 0]}
"""The tries made so far."""
ONE_MORE: Document = {"$add": [MADE, {"$cond": [{"$eq": ["$last_error_code", UNFINISHED]}, 0, 1]}]}
"""The same with this one, unless it was counted before it began."""


def key(consumer: str, event: Identity) -> Document:
    """The name of a document, in the inbox and among the dead."""
    return {"consumer": consumer, "message_id": str(event.id), "source": kept_source(event.source)}


def of_any_source(consumer: str, id_: str) -> Document:
    """The names of all documents with this id, whatever their source: a range, so that an index finds them."""
    first = {"consumer": consumer, "message_id": id_}
    return {"_id": {"$gte": first, "$lt": {**first, "source": MaxKey()}}}


@dataclass(slots=True)
class Page:
    """Some messages, and what is to be written of them once it is known which are there."""

    consumer: str
    events: list[Identity]
    new: list[Identity]
    again: list[Identity]

    @classmethod
    def of(cls, consumer: str, events: Collection[Identity]) -> Page:
        # In an order that is the same for all: two who want several wait for each other, never in a circle.
        return cls(consumer, sorted(events), [], [])

    @property
    def wanted(self) -> Document:
        return self._named(self.events)

    def _named(self, events: Collection[Identity]) -> Document:
        return {"_id": among([key(self.consumer, event) for event in events])}

    def compare(self, found: Collection[Document]) -> None:
        """Tell apart what is not there, and what waits for another try."""
        outcomes = {(each["_id"]["source"], each["_id"]["message_id"]): each["outcome"] for each in found}
        found_of = {event: outcomes.get((kept_source(event.source), str(event.id))) for event in self.events}
        self.new = [event for event, outcome in found_of.items() if outcome is None]
        self.again = [event for event, outcome in found_of.items() if outcome in OPEN]

    @property
    def documents(self) -> list[Document]:
        at = bare(utcnow())
        handled = {"outcome": "handled", "attempts": 1, "at": at}
        return [{"_id": key(self.consumer, event), **handled} for event in self.new]

    @property
    def update(self) -> tuple[Document, list[Document]]:
        """What waits for another try is handled now."""
        wanted = self._named(self.again) | {"outcome": among(OPEN)}
        handled = {"$set": {"outcome": "handled", "at": bare(utcnow()), "attempts": ONE_MORE}}
        return wanted, [handled, {"$unset": ["last_error_code", "last_error"]}]

    @property
    def unknown(self) -> set[Identity]:
        return {*self.new, *self.again}


@dataclass(slots=True)
class Waiting:
    """Whoever waits for another's transaction."""

    until: float
    turns: int = 0

    @classmethod
    def begin(cls) -> Waiting:
        return cls(time.monotonic() + PATIENCE_SECONDS)

    def pause(self) -> float:
        """How long to sleep before the next try: a little longer each time, and not as long as others do."""
        self.turns += 1
        return min(0.004 * self.turns, PAUSE_MAX_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until


def was_second(exc: PyMongoError) -> bool:
    """Did another transaction write the same document, or did the server end this one for another reason of the moment?"""
    if exc.has_error_label(TRANSIENT):
        return True
    details: Any = getattr(exc, "details", None) or {}
    codes = {getattr(exc, "code", None), *(each.get("code") for each in details.get("writeErrors", ()))}
    return DUPLICATE_KEY in codes


def contended(shown: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"MongoDB at {shown} is busy with another transaction on the same message; it is tried again."
    )


def ended() -> StoreError:
    """The transaction was over when it was to be committed."""
    return StoreError(
        "The transaction was over before its end: the handler ended it, went on after an error, which rolls back all of it, "
        "or took longer than the server's transactionLifetimeLimitSeconds; leave commit and abort to the inbox, and let "
        "errors out."
    )
