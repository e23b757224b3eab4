"""Claiming: lanes where nothing waits as they are read, the others by a closer look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from postroom.contracts.outbox import Claim, per_lane
from postroom.stores.mongo.careful_claim import CarefulClaim
from postroom.stores.mongo.claim_state import LANES_MAX, ClaimState, signs
from postroom.stores.mongo.claim_without_transactions import ClaimWithoutTransactions, Overtaken
from postroom.stores.mongo.collections import OPEN, CollectionNames, among, mine
from postroom.stores.mongo.rows import claimed_in
from postroom.stores.mongo.server import Document, Session
from postroom.stores.mongo.settle import UNMARKED, Settling
from postroom.stores.selection import Seen, fair

_seq = itemgetter("seq")


class ForeignRowsFirst(Exception):
    """Somebody wrote by hand: those documents get their places before anything is looked at."""


class Claiming:
    """Each method runs inside the transaction it is given."""

    def __init__(self, shelves: CollectionNames) -> None:
        self._shelves = shelves
        self._closer, self._alone, self._posting = (
            CarefulClaim(shelves),
            ClaimWithoutTransactions(shelves),
            Settling(shelves),
        )

    async def claim(
        self,
        session: Session,
        owner: str,
        lanes: Mapping[int, int],
        limit: int,
        now: datetime | None,
        doubtful: Collection[int] = (),
        alone: bool = False,
    ) -> Sequence[Claim]:
        if in_doubt := {lane: lanes[lane] for lane in doubtful if lane in lanes}:
            await self._drop_orphans(session, owner, in_doubt)
        seen = await signs(self._shelves, session, owner, list(lanes), now)
        if seen.strangers:
            raise ForeignRowsFirst
        await self._drop_stale(session, seen.stale)
        epochs = seen.free(lanes)
        if not epochs or limit < 1 or seen.at is None:
            return []
        lines, freed = await self._lines(session, list(epochs), per_lane(limit, len(epochs)), seen.at, seen)
        chosen = fair({lane: line for lane, line in lines.items() if line}, limit)
        if not chosen:
            return []
        if session is None:
            await self._alone.look_again(chosen)
        claims = [_claim(owner, epochs[lane], lane, seen, chosen[lane], freed) for lane in sorted(chosen)]
        written = [_written(claim, seen.at, alone=alone) for claim in claims]
        if session is None:
            await self._alone.lock(claims, seen.claims)
            await self._alone.insert(written, mine(owner, {claim.lane: claim.epoch for claim in claims}))
        else:
            await self._lock(session, claims)
            await self._shelves.claim.insert_many(written, session=session)
        return claims

    async def _drop_orphans(self, session: Session, owner: str, lanes: Mapping[int, int]) -> None:
        """R22: claims of mine whose answer was lost; but what was decided is carried out, not undone. Each lane is counted up
        first. That is its lock: a claim of it whose commit is under way and this one cannot both commit. And where there are
        no transactions, a claim that is written later than this is known by its number (`Signs.stale`)."""
        await self._shelves.lane.update_many(mine(owner, lanes), {"$inc": {"claims": 1}}, session=session)
        orphans = [{"lane": lane, "epoch": epoch} for lane, epoch in lanes.items()]
        query = {"owner": owner, "$or": orphans}
        await self._shelves.claim.delete_many({**query, **UNMARKED}, session=session)
        decided = await self._shelves.claim.find(query, session=session).to_list()
        await self._posting.carry_out(session, decided)

    async def _drop_stale(self, session: Session, stale: Collection[int]) -> None:
        """R11, its other form: a claim of an earlier epoch than the lane's, or with an earlier number than its last one, was
        never answered, and nothing of it was sent."""
        if stale:
            await self._shelves.claim.delete_many({"_id": among(stale), **UNMARKED}, session=session)

    async def _lines(
        self, session: Session, lanes: Sequence[int], want: int, at: datetime, seen: ClaimState
    ) -> tuple[dict[int, list[Document]], set[str]]:
        """What may go in each lane, in order, as whole documents; and which keys come out of a wait."""
        lines: dict[int, list[Document]] = await self._read(session, lanes, want)
        every = [each for line in lines.values() for each in line]
        held = await self._closer.held(session, every) if seen.any_held else set()
        odd = (
            set(lanes)
            if seen.any_due or seen.any_freed
            else {lane for lane, line in lines.items() if any(_odd(each, at, held) for each in line)}
        )
        freed: set[str] = set()
        looked: dict[int, Sequence[Seen]] = {}
        for lane in sorted(odd):
            looked[lane], keys = await self._closer.line(session, lane, want, at, seen)
            looked[lane] = looked[lane][:want]
            freed |= keys
        whole = await self._whole(session, [each.seq for line in looked.values() for each in line])
        for lane, line in looked.items():
            lines[lane] = [whole[each.seq] for each in line if each.seq in whole]
        return lines, freed

    async def _read(self, session: Session, lanes: Sequence[int], want: int) -> dict[int, list[Document]]:
        """The first so many in the line of each lane, from its very start: openness decides, never a position (R15)."""
        pipeline: list[Document] = [
            {"$match": {"_id": among(lanes)}},
            {
                "$lookup": {
                    "from": self._shelves.outbox.name,
                    "localField": "_id",
                    "foreignField": "line",
                    "pipeline": [{"$match": OPEN}, {"$sort": {"seq": 1}}, {"$limit": want}],
                    "as": "message",
                }
            },
            # Right behind it, so that the messages of a lane never are one document, which might be too large.
            {"$unwind": "$message"},
            {"$replaceRoot": {"newRoot": "$message"}},
        ]
        lines: defaultdict[int, list[Document]] = defaultdict(list)
        found = await self._shelves.lane.aggregate(pipeline, session=session, batchSize=want * len(lanes) + 1)
        for each in await found.to_list():
            lines[each["line"]].append(each)
        return {lane: sorted(line, key=_seq) for lane, line in lines.items()}

    async def _whole(self, session: Session, seqs: Sequence[int]) -> dict[int, Document]:
        if not seqs:
            return {}
        found = self._shelves.outbox.find({"seq": among(seqs)}, session=session, batch_size=len(seqs) + 1)
        return {each["seq"]: each for each in await found.to_list()}

    async def _lock(self, session: Session, claims: Sequence[Claim]) -> None:
        """R11: written, so that whoever takes a lane meanwhile and this claim cannot both commit."""
        held = {"_id": among([claim.lane for claim in claims]), "owner": claims[0].owner}
        locked = await self._shelves.lane.update_many(held, {"$inc": {"claims": 1}}, session=session)
        if locked.matched_count != len(claims):
            raise Overtaken


def _odd(found: Document, at: datetime, held: set[str]) -> bool:
    """It has to wait, or to travel alone: its lane wants a closer look."""
    due_at = found.get("due_at")
    return bool(found.get("lost")) or (due_at is not None and due_at > at) or found.get("key") in held


def _claim(owner: str, epoch: int, lane: int, seen: ClaimState, chosen: Sequence[Document], freed: set[str]) -> Claim:
    at = seen.at
    assert at is not None  # noqa: S101 - a lane of mine came with its moment
    messages = [claimed_in(each, at) for each in chosen]
    keys = frozenset(key for each in chosen if (key := each.get("key")) in freed) if freed else frozenset()
    # Never used again (R3): how many claims of this lane there were, and the lane.
    claim_id = (seen.claims[lane] + 1) * LANES_MAX + lane
    return Claim(claim_id, lane, epoch, owner, max(each.get("lost", 0) for each in chosen), messages, keys)


def _written(claim: Claim, at: datetime, *, alone: bool) -> Document:
    return {
        "_id": claim.id,
        "lane": claim.lane,
        "epoch": claim.epoch,
        "owner": claim.owner,
        "seqs": [claimed.seq for claimed in claim.messages],
        "claimed_at": at,
        "alone": alone,
    }
