"""Why a message is where it is, in plain sentences, and what to do about it; and what became of it where it was received."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from uuid import UUID

from postroom.clock import utcnow
from postroom.contracts.inbox import UNFINISHED, InboxStore, Known, KnownQuery
from postroom.contracts.lanes import Lane, RelayInfo
from postroom.contracts.ops import OPEN, Query, Record, Status
from postroom.contracts.store import Store
from postroom.ops.remedies import advice
from postroom.ops.status import RelaySnapshot, look_at_relays
from postroom.ops.words import at, count, error, ordinal, when
from postroom.relay.verdict import NO_ROUTE

NEVER_SENT = (NO_ROUTE, "CORRUPT_PAYLOAD")
"""What a relay says of a message that it did not even try to send."""
IN_THE_WAY: tuple[Status, ...] = ("dead", *OPEN)
"""Only these can hold their key back. A key may have been published a million times: those are not read."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about a message. No record: there is no such message, and the sentence says so."""

    sentences: Sequence[str]
    record: Record | None


async def explain(store: Store, message_id: UUID, *, now: datetime | None = None) -> Explanation:
    """Say why this message is where it is, and what to do.

    What stands in the way is read after the message itself: of an outbox that moves meanwhile, it tells the moment."""
    found = await store.ops.find(Query(ids=[message_id]))
    if not found:
        return Explanation([_unknown(message_id)], None)
    (record,) = found
    of_key = await _of_key(store, record)
    return Explanation(sentences(record, of_key, await look_at_relays(store, now=now)), record)


async def explain_received(store: InboxStore, message_id: UUID, *, now: datetime | None = None) -> Sequence[str]:
    """Say what each inbox of this database did with the message. Returns no sentence when no inbox has seen it."""
    found = await store.known(KnownQuery(ids=[message_id]))
    return [sentence for known in found for sentence in _received(known, now or utcnow())]


async def _of_key(store: Store, record: Record) -> Sequence[Record]:
    key = record.message.key
    if key is None or record.status not in IN_THE_WAY:
        return [record]
    # By seq: one that moves on between two of these questions is answered twice.
    found = {each.seq: each for status in IN_THE_WAY for each in await store.ops.find(Query(key=key, status=status))}
    return [found[seq] for seq in sorted(found)]


def _unknown(message_id: UUID) -> str:
    return (
        f"There is no message {message_id} in this outbox: its transaction never committed, or it is in another store; "
        "`postroom list` shows what is here."
    )


def sentences(record: Record, of_key: Sequence[Record], sending: RelaySnapshot) -> Sequence[str]:
    """Say why this message is where it is: first its state, then what it waits for, then what to do.

    *of_key* are the messages of its key that are open or dead, in the order written; it may be among them."""
    others = [other for other in of_key if other.seq != record.seq]
    return list(_Case(record, others, sending)())


@dataclass(frozen=True, slots=True)
class _Case:
    """One message, and all that bears on it."""

    record: Record
    others: Sequence[Record]
    sending: RelaySnapshot

    def __call__(self) -> Iterator[str]:
        match self.record.status:
            case "published":
                yield f"It was published {self._at(self.record.settled_at)}, at {ordinal(self.record.attempts)} try."
            case "dead":
                yield from self._dead()
                yield from self._remedy(self.record, "then requeue it")
            case "expired":
                yield from self._expired()
            case "discarded":
                yield f"A person discarded it {self._at(self.record.settled_at)}: it will not be sent."
                yield from self._tried_before()
            case "sending":
                yield f"It is {self._flight(self.record)}"
            case "pending" | "failed":
                yield from self._waiting()
                yield from self._remedy(self._to_blame, "it goes by itself then")
            case unknown:
                assert_never(unknown)

    # ── settled ──

    def _dead(self) -> Iterator[str]:
        record = self.record
        yield f"It died {self._at(record.settled_at)}, after {count(record.attempts, 'try')}: {_error(record)}."
        if record.last_error_code in NEVER_SENT and record.attempts <= 1:
            yield "It was not sent anywhere."
        else:
            yield "It may have been delivered, if an answer was lost."
        if record.parked:
            behind = [other for other in self.others if other.status in OPEN]
            wait = "waits" if len(behind) == 1 else "wait"
            yield f"Its key {record.message.key!r} is parked: {count(len(behind), 'message')} {wait} behind it."
        elif record.message.key is not None:
            yield "Its key is not parked by it: later messages pass it by."
        yield f"Run {_requeue(record)} to send it again, or {_discard(record)} to give it up."

    def _expired(self) -> Iterator[str]:
        expires_at = self.record.message.expires_at
        yield f"It expired {self._at(expires_at or self.record.settled_at)}, before it could be sent."
        yield from self._tried_before()
        yield "It will not be sent: if it still matters, put a new message."

    def _tried_before(self) -> Iterator[str]:
        if self.record.attempts:
            tries = count(self.record.attempts, "try")
            yield f"It may have been delivered before that: it had {tries}, the last with {_error(self.record)}."

    # ── open ──

    def _waiting(self) -> Iterator[str]:
        yield self._state()
        own = list(self._own_time())
        yield from own
        if heads := self._dead_heads:
            yield from self._behind_the_dead(heads)
        elif flying := next((other for other in self.others if other.status == "sending"), None):
            yield f"It waits for {flying.message.id} of its key, {self._flight(flying)}"
        else:
            if ahead := self._ahead():
                yield self._behind(ahead)
            elif not own:
                yield self._next_in_line()
            yield self._lane()

    def _state(self) -> str:
        record = self.record
        if record.status == "failed":
            return f"It failed {self._at(record.updated_at)}, at {ordinal(record.attempts)} try: {_error(record)}."
        if record.last_error_code is not None:
            return f"It could not be sent {self._at(record.updated_at)}, which spent no attempt: {_error(record)}."
        return f"It has been pending since {self._when(record.created_at)}."

    @property
    def _dead_heads(self) -> Sequence[Record]:
        """The dead messages that park its key."""
        return [other for other in self.others if other.status == "dead" and other.parked]

    @property
    def _to_blame(self) -> Record:
        """Whose error is to be fixed for this message to go: the first that parks its key, or else its own."""
        return next(iter(self._dead_heads), self.record)

    def _remedy(self, record: Record, then: str) -> Iterator[str]:
        """What to do about the error of this message; *then* is what follows once there is a route for it."""
        dead = record.status == "dead"
        if record.last_error_code == NO_ROUTE:
            then = "then requeue that one" if dead and record is not self.record else then
            yield f"Add a route that fits {record.message.type!r} to postroom.toml and restart the relays; {then}."
        else:
            yield from advice(record.last_error_code, record.last_error, waits=not dead)

    def _own_time(self) -> Iterator[str]:
        """What its own times say."""
        record, expires_at = self.record, self.record.message.expires_at
        if self._in_backoff(record):
            at_once = f"; {_requeue(record)} makes it due at once" if record.status == "failed" else ""
            with_it = "" if record.message.key is None else ", and its key waits with it"
            yield f"Its next try is due {self._at(record.due_at)}{with_it}{at_once}."
        elif not self._due(record):
            alone = "" if record.message.key is None else "; its key does not wait for it"
            yield f"It is not due until {self._when(record.due_at)}{alone}."
        if expires_at is not None and expires_at <= self.sending.now:
            yield f"Its time ran out {self._at(expires_at)}: the relay will settle it as expired, and not send it."

    def _behind_the_dead(self, heads: Sequence[Record]) -> Iterator[str]:
        head, key = heads[0], str(self.record.message.key)
        yield f"Its key {key!r} is parked: it waits behind {head.message.id}, which is dead: {_error(head)}."
        yield f"Run {_requeue(head)} to send that one again (it may have been delivered), or {_discard(head)} to give it up."
        if more := len(heads) - 1:
            park = "more dead message parks" if more == 1 else "more dead messages park"
            yield f"{more:,} {park} the key too: `postroom list --status dead --key {shlex.quote(key)}` shows them."

    def _ahead(self) -> Sequence[Record]:
        """Those of its key that go first: any in backoff, and the earlier ones that are due."""
        return [
            other
            for other in self.others
            if other.status in OPEN and (self._in_backoff(other) or (other.seq < self.record.seq and self._due(other)))
        ]

    def _behind(self, ahead: Sequence[Record]) -> str:
        if head := next(filter(self._in_backoff, ahead), None):
            due = f"is due {self._at(head.due_at)}"
            return f"It waits behind {head.message.id} of its key, which failed with {_error(head)} and {due}."
        go = "message of its key goes" if len(ahead) == 1 else "messages of its key go"
        return f"It waits its turn: {len(ahead):,} earlier {go} first."

    def _next_in_line(self) -> str:
        """What it waits for in its key: nothing. Whether anybody sends it, its lane says."""
        lane = self._lane_of(self.record)
        nobody = lane is not None and lane.owner is not None and not self.sending.has_live_owner(lane)
        held = "Only its relay holds it back" if nobody else "Nothing holds it back"
        if self.record.message.key is None:
            return f"{held}: it has no key, so it waits for no other message."
        return f"{held}: it is next in line of its key."

    def _due(self, record: Record) -> bool:
        return record.due_at is None or record.due_at <= self.sending.now

    def _in_backoff(self, record: Record) -> bool:
        """It was tried, and its next try is not due. One that was never tried waits alone."""
        return record.status in ("pending", "failed") and record.last_error_code is not None and not self._due(record)

    # ── who sends it ──

    def _flight(self, record: Record) -> str:
        """How a message in flight goes on, as the rest of a sentence."""
        lane = self._lane_of(record)
        since = f"in flight at {self._relay(record.owner)} since {self._when(record.locked_at)}"
        if lane is None:
            return f"{since}."
        if self._alive(lane):
            return f"{since}{self._silence(lane)}."
        ended = "was given up" if lane.lease_until is None else f"ran out {self._at(lane.lease_until)}"
        return f"{since}, whose lease {ended}: {self._taker()}; it may have been delivered, and goes again."

    def _silence(self, lane: Lane) -> str:
        """What to know of an owner that was not heard of as often as it should be, though its lease runs."""
        if self.sending.has_live_owner(lane):
            return ""
        ends = f"when its lease ends {self._at(lane.lease_until)}"
        if lane.owner in self.sending.gone:
            return f", whose process is gone: a relay on its machine takes over at once, any other {ends}"
        relay = self._relay_on_record(lane.owner)
        heard = self._when(None if relay is None else relay.seen_at)
        return f", last heard of {heard}: if it is dead, another takes over {ends}"

    def _lane(self) -> str:
        """Who may send it."""
        lane = self._lane_of(self.record)
        if lane is None:
            return f"It has no lane yet, and gets one from the relay: {self._taker()}."
        if lane.owner is None or lane.lease_until is None:
            return f"Its lane, {lane.lane}, has no owner: {self._taker()}."
        if self._alive(lane):
            until = self._silence(lane) or f" until {self._when(lane.lease_until)}"
            return f"Its lane, {lane.lane}, is owned by {self._relay(lane.owner)}{until}."
        ran_out = f"whose lease ran out {self._at(lane.lease_until)}"
        return f"Its lane, {lane.lane}, was owned by {self._relay(lane.owner)}, {ran_out}: {self._taker()}."

    def _lane_of(self, record: Record) -> Lane | None:
        return next((lane for lane in self.sending.lanes if lane.lane == record.lane), None)

    def _taker(self) -> str:
        """Who takes a lane that is nobody's."""
        if any(map(self.sending.has_live_owner, self.sending.lanes)):
            return "a running relay will take it over"
        return "no relay is running, so start one with `postroom relay`"

    def _alive(self, lane: Lane) -> bool:
        return lane.lease_until is not None and lane.lease_until >= self.sending.now

    def _relay(self, owner: str | None) -> str:
        if owner is None:
            return "a relay"
        known = self._relay_on_record(owner)
        if known is None:
            return f"relay {owner}"
        name = known.name if known.name == owner else f"{known.name} ({owner})"
        return f"relay {name} on {known.host}" if known.host else f"relay {name}"

    def _relay_on_record(self, owner: str | None) -> RelayInfo | None:
        return next((relay for relay in self.sending.relays if relay.owner == owner), None)

    # ── times ──

    def _at(self, moment: datetime | None) -> str:
        return at(moment, self.sending.now)

    def _when(self, moment: datetime | None) -> str:
        return when(moment, self.sending.now)


def _received(known: Known, now: datetime) -> Iterator[str]:
    """What one inbox did with a message."""
    inbox, moment = f"The inbox {known.consumer}", at(known.at, now)
    match known.outcome:
        case "handled":
            yield f"{inbox} handled it {moment}, at {ordinal(max(known.attempts, 1))} try."
        case "failing" if known.code == UNFINISHED:
            begun = f"{inbox} began {ordinal(known.attempts)} try of it {moment}"
            yield f"{begun}: it is being handled, or its process died in it."
        case "failing":
            failed = f"{inbox} failed to handle it {moment}, at {ordinal(known.attempts)} try"
            yield f"{failed}: {error(known.code, known.error)}."
            yield "It is tried again by itself."
            yield from advice(known.code, known.error)
        case "dead":
            tries = count(known.attempts, "try")
            yield f"{inbox} gave it up {moment}, after {tries}: {error(known.code, known.error)}."
            requeue = f"`postroom inbox requeue --consumer {known.consumer} {known.id}`"
            yield f"Run {requeue} once the cause is fixed."
            yield from advice(known.code, known.error)
        case "requeued":
            yield f"A person let the inbox {known.consumer} handle it again {moment}: a running `postroom consume` takes it."
        case unknown:
            assert_never(unknown)


def _requeue(record: Record) -> str:
    return f"`postroom requeue {record.message.id}`"


def _discard(record: Record) -> str:
    return f"`postroom discard {record.message.id}`"


def _error(record: Record) -> str:
    return error(record.last_error_code, record.last_error)
