"""Messages that were in flight when a relay died: one of them may be what killed it. Who travels with whom (R8).

Nobody knows which one it was, and nearly always it was none of them. So those that were lost once travel in half batches, one
such batch at a time, beside everybody else; who was lost again travels alone, beside everybody else; and only the try whose
loss would bury a message travels with nothing beside it in the process. No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from postroom.contracts.lanes import OnLeaseLost
from postroom.contracts.outbox import Buried, Claim


class SortedOut(NamedTuple):
    """What a claim brought."""

    clean: list[Claim]
    """Go at once."""
    suspects: list[Claim]
    """Go together, and with nobody else."""
    back: list[Claim]
    """Are handed back, untouched: it is not their turn."""


class Suspects:
    """What is known of the lanes of a relay. Only what claims brought: a lane with a suspect is found by claiming from it."""

    def __init__(self, lost: OnLeaseLost) -> None:
        self._lost = lost
        self._lanes: dict[int, bool] = {}
        """Lanes with a suspect at their head; True: it travels alone."""
        self._turns = 0
        self.under_way = False
        """Is a batch of suspects under way? There may be one at a time."""
        self.last_try: int | None = None
        """The lane of a message whose next loss would bury it: it goes when nothing else is under way."""

    def turn(self, lanes: Mapping[int, int], room: int) -> dict[int, int]:
        """Of these idle lanes, those with suspects whose turn it is: as many as may travel together, or one lane with one that
        travels alone. None while others are under way; and where there is room for one trip only, every other time."""
        theirs = {lane: epoch for lane, epoch in lanes.items() if lane in self._lanes}
        if not theirs or self.under_way:
            return {}
        self._turns += 1
        if room < 2 and len(theirs) < len(lanes) and self._turns % 2:
            return {}
        together = {lane: epoch for lane, epoch in theirs.items() if not self._lanes[lane]}
        alone = [lane for lane in theirs if self._lanes[lane]]
        if together and (not alone or self._turns % 4 < 2):
            return together
        lane = alone[self._turns // 4 % len(alone)]
        return {lane: theirs[lane]}

    def others(self, lanes: Mapping[int, int]) -> dict[int, int]:
        """Of these lanes, those in which no suspect is known."""
        return {lane: epoch for lane, epoch in lanes.items() if lane not in self._lanes}

    def sort_out(self, part: Mapping[int, int], claims: Sequence[Claim], *, theirs: bool) -> SortedOut:
        """What of a claim from these lanes goes now. *theirs*: it was the suspects' turn."""
        clean, suspects = ([claim for claim in claims if bool(claim.lost) is lost] for lost in (False, True))
        for lane in part:
            self._lanes.pop(lane, None)
        self._lanes |= {claim.lane: claim.solo for claim in suspects}
        if not theirs:
            return SortedOut(clean, [], suspects)
        go = [claim for claim in suspects if not claim.solo] or suspects[:1]
        if go and go[0].solo and self.is_last_try(go[0]):
            self.last_try, go = go[0].lane, []
        return SortedOut(clean, go, [claim for claim in suspects if claim not in go])

    def is_last_try(self, claim: Claim) -> bool:
        """Would the loss of this claim, of one message that travels alone, bury it?"""
        return isinstance(self._lost(claim.messages[0].attempts + 1), Buried)
