"""What a verdict does to its message, as a note that can be kept in the claim and carried out from there, by anybody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pymongo import UpdateMany

from postroom.contracts.outbox import Buried, Expired, Published, Retry, Verdict
from postroom.stores.mongo.collections import ASIDE, OPEN, among
from postroom.stores.mongo.server import Document
from postroom.stores.sql.texts import kept_code, kept_error

DONE: Document = ASIDE | {"lost": ""}
SENT: Document = DONE | {"last_error_code": "", "last_error": ""}


class RowPlace(NamedTuple):
    """Where a message belongs, whatever becomes of it."""

    key: str | None
    lane: int


def places_of(found: Sequence[Document]) -> dict[int, RowPlace]:
    """Where these messages belong, by seq."""
    return {each["seq"]: RowPlace(each.get("key"), each["lane"]) for each in found}


def notes(
    verdicts: Mapping[int, Verdict], places: Mapping[int, RowPlace], at: datetime, *, lost: bool = False
) -> list[Document]:
    """A note for each message that the verdicts change: which fields it gets, and whether a try was spent."""
    return [
        {"seq": seq, "spent": spent, "facts": facts, "lost": int(lost)}
        for seq, verdict in sorted(verdicts.items())
        for facts, spent in _meaning(verdict, places[seq], at)
    ]


def _meaning(verdict: Verdict, place: RowPlace, at: datetime) -> Iterable[tuple[Document, int]]:
    match verdict:
        case Published():
            yield {"outcome": "published", "settled_at": at, "tried_at": at}, 1
        case Expired():
            yield {"outcome": "expired", "settled_at": at}, 0
        case Buried(park=park):
            parks = {"parks": place.key} if park and place.key is not None else {}
            yield {"outcome": "dead", "settled_at": at, "tried_at": at, **_error(verdict), **parks}, 1
        case Retry(after=after, spent=spent):
            aside: Document = {"later": place.lane} if place.key is None else {"behind": place.key}
            yield {"tried_at": at, "due_at": at + after, **_error(verdict), **aside}, int(spent)


def _error(verdict: Buried | Retry) -> Document:
    return {"last_error_code": kept_code(verdict.code), "last_error": kept_error(verdict.error)}


def writes(claim: int, noted: Iterable[Document]) -> list[UpdateMany]:
    """Carry the notes of this claim out, on messages that are still open. Twice is as once, and too late is never: `by` says
    whose note a message had last, and the claims of a lane are numbered in their order."""
    alike: defaultdict[Any, list[Document]] = defaultdict(list)
    for each in noted:
        # Those that were published or expired are written with one stroke; an error is each one's own.
        own = each["seq"] if "last_error" in each["facts"] else None
        alike[each["facts"].get("outcome"), own].append(each)
    fresh = {**OPEN, "by": {"$not": {"$gte": claim}}}
    return [
        UpdateMany({"seq": among([each["seq"] for each in same]), **fresh}, _update(claim, same[0]))
        for same in alike.values()
    ]


def _update(claim: int, note: Document) -> Document:
    facts: Document = note["facts"]
    outcome = facts.get("outcome")
    gone = SENT if outcome == "published" else DONE if outcome else ASIDE
    counted: Document = {"attempts": note["spent"]} | ({} if outcome else {"lost": note["lost"]})
    return {"$set": {**facts, "by": claim}, "$inc": counted, "$unset": _without(gone, facts)}


def published(at: datetime | None) -> Document:
    """The update of a message that was confirmed; by the server's clock, unless a moment is given."""
    told: Document = {"$set": {"outcome": "published"}, "$inc": {"attempts": 1}, "$unset": SENT}
    if at is None:
        return told | {"$currentDate": {"settled_at": True, "tried_at": True}}
    return told | {"$set": {"outcome": "published", "settled_at": at, "tried_at": at}}


def _without(fields: Document, those: Collection[str]) -> Document:
    return {name: value for name, value in fields.items() if name not in those}
