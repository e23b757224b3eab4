"""What a person does to messages: requeue or discard them, and requeue dead deliveries of an inbox.

A deed has two steps: a plan, which changes nothing and may be a refusal, and `apply`. All rules about what may be touched are
here. The command line and other faces ask the person, and tell what was done.

```python
found = await plan_requeue(store, Query(status="dead"), remembered=timedelta(days=30))
if isinstance(found, Plan):
    done = await apply(store, found)
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from postroom.clock import utcnow
from postroom.contracts.inbox import DeadDelivery, DeadQuery, InboxStore
from postroom.contracts.ops import Progress, Query, Record, Status
from postroom.contracts.store import Store
from postroom.durations import format_duration
from postroom.ops.words import count

PAGE = 500
"""How many messages are read at once."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that a person does to messages of certain statuses."""

    verb: Literal["requeue", "discard"]
    done: str
    """The verb as it is said of what was done."""
    statuses: tuple[Status, ...]
    """It can be done to these alone. The store holds to it, too."""


REQUEUE = Deed("requeue", "requeued", ("dead", "failed"))
DISCARD = Deed("discard", "discarded", ("dead", "failed", "pending"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """It must not be done, and why: a sentence without its full stop. Nothing was changed."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done to which messages. Only `apply` changes anything."""

    deed: Deed
    query: Query | None
    """What it is done to. None: to no message at all."""
    named: Sequence[UUID] = ()
    """The ids that the person gave; empty where a status was given instead."""
    seen: Sequence[Record] = ()
    """The messages that were looked at, oldest first, without their bodies. Empty where no rule asked for a look."""

    @property
    def able(self) -> Sequence[Record]:
        """Those of them that it can be done to."""
        return [record for record in self.seen if record.status in self.deed.statuses]

    @property
    def left_alone(self) -> Mapping[UUID, str]:
        """By id that the person gave: what those messages are that it cannot be done to."""
        found = {record.message.id: record.status for record in self.seen}
        states: dict[UUID, str] = {id_: found.get(id_, "not in this outbox") for id_ in self.named}
        return {
            id_: "in flight" if state == "sending" else state
            for id_, state in states.items()
            if state not in self.deed.statuses
        }


@dataclass(frozen=True, slots=True)
class Done:
    """What was done by a plan."""

    plan: Plan
    count: int
    """To how many messages."""

    @property
    def is_all(self) -> bool:
        """Was it done to every message that was named by its id?"""
        return self.count == len(self.plan.named)

    @property
    def moved_meanwhile(self) -> bool:
        """Did some of the named messages change between the plan and the deed?"""
        return len(self.plan.named) - len(self.plan.left_alone) != self.count


async def plan_requeue(
    store: Store, query: Query, *, remembered: timedelta | None, look: bool = False, now: datetime | None = None
) -> Plan | Refusal:
    """Plan to put these messages back to pending. The query names ids, or a status.

    *remembered* is for how long inboxes know a message again. A receiver that has forgotten a message would handle it a second
    time: if one of these is older, all are refused. None: a person has said that this is right.

    *look* says that a person wants to see the messages. Without it they are read only where a rule asks for that."""
    if refusal := _refused_choice(query):
        return refusal
    look = look or bool(query.ids) or remembered is not None
    plan = Plan(deed=REQUEUE, query=query, named=tuple(query.ids), seen=await _read(store, query) if look else ())
    if remembered is None:
        return plan
    oldest = (now or utcnow()) - remembered
    if forgotten := [record for record in plan.able if record.created_at < oldest]:
        return _refused_as_forgotten(forgotten, remembered)
    # What is older may die after the look: the store leaves it alone.
    return replace(plan, query=replace(query, since=max(oldest, query.since or oldest)))


async def plan_discard(store: Store, query: Query, *, look: bool = False, exactly: bool = False) -> Plan | Refusal:
    """Plan to give up these messages. The query names ids, or a status. *look*: see `plan_requeue`.

    *exactly* binds the plan to the messages that are there now, because a person is shown them and asked: what is written
    later is not meant."""
    if refusal := _refused_choice(query):
        return refusal
    look = look or exactly or bool(query.ids)
    plan = Plan(deed=DISCARD, query=query, named=tuple(query.ids), seen=await _read(store, query) if look else ())
    if not exactly:
        return plan
    # No ids at all would name every message.
    able = tuple(record.message.id for record in plan.able)
    return replace(plan, query=replace(query, ids=able) if able else None)


async def apply(store: Store, plan: Plan, *, told: Progress | None = None) -> Done:
    """Do what was planned, in chunks. *told* hears after each chunk how many there were."""
    if plan.query is None:
        return Done(plan, 0)
    if plan.deed.verb == "requeue":
        return Done(plan, await store.ops.requeue(plan.query, told=told))
    return Done(plan, await store.ops.discard(plan.query, told=told))


def _refused_choice(query: Query) -> Refusal | None:
    """A query that names nothing would be every message."""
    if query.ids or query.status is not None:
        return None
    return Refusal("No messages were named: give their ids, or a status")


def _refused_as_forgotten(forgotten: Sequence[Record], remembered: timedelta) -> Refusal:
    are = "is" if len(forgotten) == 1 else "are"
    return Refusal(
        f"{count(len(forgotten), 'message')} of these, such as {forgotten[0].message.id}, {are} older than inboxes remember "
        f"({format_duration(remembered)}): if it was delivered then, it would be handled again. Nothing was requeued"
    )


async def _read(store: Store, query: Query) -> Sequence[Record]:
    """What the query names, a page at a time, and without the bodies: there may be a great many."""
    pages, before = list[Sequence[Record]](), query.before
    while page := await store.ops.find(replace(query, before=before, limit=PAGE)):
        pages.append([replace(record, message=record.message.replace(body=None)) for record in page])
        before = page[0].seq
        if len(page) < PAGE:
            break
    return [record for page in reversed(pages) for record in page]


# ── dead deliveries of inboxes ──


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPlan:
    """Which dead deliveries would be handled again."""

    query: DeadQuery
    seen: Sequence[DeadDelivery] = ()
    """Those that were looked at, where a person wanted to see them."""


async def plan_redelivery(store: InboxStore, query: DeadQuery, *, look: bool = False) -> DeliveryPlan | Refusal:
    """Plan to let these dead deliveries be handled again, with no attempts made. The query names at least one property.

    *look* says that a person wants to see them. What was requeued before is not meant."""
    if not (query.ids or query.consumer or query.type or query.key or query.code):
        return Refusal("No deliveries were named: give their ids, or a consumer, type, key or code")
    wanted = replace(query, requeued=False)
    return DeliveryPlan(query=query, seen=await store.dead(wanted) if look else ())


async def redeliver(store: InboxStore, plan: DeliveryPlan) -> int | Refusal:
    """Do what was planned; return to how many deliveries. It is refused when ids were named and none of them is dead."""
    number = await store.requeue(plan.query)
    if plan.query.ids and not number:
        return Refusal("Nothing was requeued: none of these ids is dead here")
    return number
