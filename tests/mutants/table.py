"""The mutants: one rule taken out of the relay each, and the scene that must fail then.

Named after their lines in the table of the model that the protocol was checked with. Where two rules guard the same thing,
the other one is off as well: in the relay, or by a store that breaks that promise."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.loader import Change

from postroom.stores.memory.outbox import MemoryOutbox
from postroom.testing.saboteurs.lanes import ReleasesBeforeItIsDrained
from postroom.testing.saboteurs.outbox import ClaimsWhatIsInFlight


@dataclass(frozen=True)
class Mutant:
    """A relay with one rule taken out."""

    name: str
    rule: str
    caught_by: str
    changes: tuple[Change, ...]
    outbox: type[MemoryOutbox] = MemoryOutbox
    """Where the store guards the same thing: one that does not."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.name}"


NO_RECONCILE = Change(
    "claims.py",
    "doubtful = self._doubtful & part.keys()",
    "doubtful = frozenset()",
)
LATE_ANSWER_COUNTS = Change("owned_lanes.py", "late = self.expire(now)", "late: list[int] = []")
NO_EXPIRY = Change("owned_lanes.py", "if held.deadline <= now]", "if held.deadline <= now and False]")

MUTANTS = [
    Mutant(
        "two relays of one name are one owner",
        "R2",
        "two_relays_of_one_name_are_two",
        (Change("relay.py", 'self.owner = f"{label}:{secrets.token_hex(4)}"', "self.owner = label"),),
    ),
    Mutant(
        "take adds attempts without burying",
        "R6",
        "a_poison_message_takes_no_innocents_with_it",
        (
            Change("verdict.py", 'return Buried("CRASH_LOOP"', 'return Retry(policy.backoff.delay(1), "CRASH_LOOP"'),
            Change("verdict.py", 'or lost its lease", park=park)', 'or lost its lease")'),
        ),
    ),
    Mutant(
        "old batch survives a retake",
        "R7",
        "an_old_batch_ends_when_its_lane_is_taken_anew",
        (
            Change(
                "owned_lanes.py",
                "held is not None and held.epoch == epoch and held.deadline",
                "held is not None and held.deadline",
            ),
        ),
    ),
    Mutant(
        "suspects travel with everybody",
        "R8",
        "a_poison_message_takes_no_innocents_with_it",
        (
            Change(
                "suspects.py",
                "clean, suspects = ([claim for claim in claims if bool(claim.lost) is lost] for lost in (False, True))",
                "clean, suspects = list(claims), list[Claim]()",
            ),
        ),
    ),
    Mutant(
        "the last try is not told that it is alone",
        "R8",
        "a_poison_message_in_the_first_lane_takes_no_innocents_with_it",
        (Change("claims.py", "doubtful=doubtful, alone=turn.alone", "doubtful=doubtful"),),
    ),
    Mutant(
        "the last try does not wait for what is under way",
        "R8",
        "the_last_try_of_a_suspect_has_nothing_beside_it",
        (Change("relay.py", "await asyncio.wait(self._trips)", "pass"),),
    ),
    Mutant(
        "renews a lane that it slept through",
        "R10",
        "a_lane_slept_through_is_given_up_and_not_renewed",
        (
            Change(
                "heartbeat.py",
                "self._tell_lost(self._owned.expire(monotonic()))\n        asked",
                "asked",
            ),
            LATE_ANSWER_COUNTS,
        ),
    ),
    Mutant(
        "does not renew",
        "R9",
        "a_quiet_relay_keeps_its_lanes",
        (Change("heartbeat.py", "if asked else frozenset()", "if asked and False else frozenset(asked)"),),
    ),
    Mutant(
        "no local deadline",
        "R9",
        "nothing_is_sent_past_the_lease",
        (NO_EXPIRY, Change("owned_lanes.py", "held.deadline - now > needed", "needed is not None")),
    ),
    Mutant(
        "local deadline later than the lease",
        "R9",
        "nothing_is_sent_past_the_lease",
        (
            Change(
                "heartbeat.py",
                "deadline = monotonic() + self._lease.total_seconds()",
                "deadline = monotonic() + 2 * self._lease.total_seconds()",
            ),
        ),
    ),
    Mutant(
        "local deadline taken after the renewal",
        "R9",
        "the_way_of_a_renewal_counts_against_the_lease",
        (
            Change(
                "heartbeat.py",
                "self._owned.renewed(mine, deadline, asked, monotonic())",
                "self._owned.renewed(mine, monotonic() + self._lease.total_seconds(), asked, monotonic())",
            ),
        ),
    ),
    Mutant(
        "renews a lane whose work it dropped at the deadline",
        "R10",
        "a_lane_given_up_comes_back_by_taking_it_anew",
        (NO_EXPIRY, NO_RECONCILE),
    ),
    Mutant(
        "a renewal answered past the deadline counts",
        "R10",
        "a_renewal_that_is_answered_past_the_deadline_comes_too_late",
        (LATE_ANSWER_COUNTS,),
    ),
    Mutant(
        "a renewal answered past the deadline counts, and a settle gives up without doubt",
        "R10",
        "a_renewal_that_is_answered_past_the_deadline_comes_too_late",
        (LATE_ANSWER_COUNTS, Change("claims.py", "if lost is None:", "if lost is None and False:")),
    ),
    Mutant(
        "goes on in a lane that another relay renewed",
        "R10",
        "what_is_left_of_a_batch_is_not_sent_in_a_lane_that_was_lost",
        (Change("owned_lanes.py", "late + self.drop(lane for lane in asked if lane not in lanes)", "late"),),
    ),
    Mutant(
        "two claims of one relay at once",
        "R11",
        "a_lane_is_claimed_once_at_a_time",
        (
            Change("owned_lanes.py", "if not held.busy and not held.leaving", "if not held.leaving"),
            Change("owned_lanes.py", "held.epoch == lanes[lane] and not held.busy}", "held.epoch == lanes[lane]}"),
        ),
        outbox=ClaimsWhatIsInFlight,
    ),
    Mutant(
        "park not enforced",
        "R13",
        "a_message_has_as_many_tries_as_it_was_given",
        (
            Change(
                "verdict.py",
                'return Buried(decision.code, f"{code}: {error}", park=park)',
                "return Buried(decision.code, park=False)",
            ),
        ),
    ),
    Mutant(
        "a rejected head does not park its key",
        "R13",
        "a_rejected_message_is_not_tried_again",
        (Change("verdict.py", "return Buried(code, error, park=park)", "return Buried(code, error, park=False)"),),
    ),
    Mutant(
        "what is behind a broken message goes out with its batch",
        "R13",
        "a_broken_message_lets_nobody_of_its_key_pass",
        (
            Change(
                "sender.py", "stopped.add(key)\n                    # Earlier", "pass\n                    # Earlier"
            ),
        ),
    ),
    Mutant(
        "begins a send that may outlast the lease",
        "R16",
        "nothing_is_sent_past_the_lease",
        (Change("owned_lanes.py", "held.deadline - now > needed", "held.deadline > now"),),
    ),
    Mutant(
        "a failure does not stop the key in the batch",
        "R17",
        "a_failure_stops_its_key_whatever_the_route",
        (Change("sender.py", "and each.claimed.message.key not in stopped]", "]"),),
    ),
    Mutant(
        "sends the next of a key before the answer to the one before",
        "R17",
        "the_next_of_a_key_waits_for_the_answer",
        (Change("sender.py", "turn += route is not parcel.route", "turn += 0"),),
    ),
    Mutant(
        "unknown effect counted as sent",
        "R18",
        "an_answer_that_never_came_is_no_success",
        (Change("verdict.py", "case Sent():", "case Sent() | Failed(unknown=True):"),),
    ),
    Mutant(
        "no answer in time counted as sent",
        "R18",
        "a_transport_that_does_not_answer_is_no_success",
        (
            Change(
                "breaker.py",
                'return [Failed("TIMEOUT", "the transport did not answer in time", unknown=True)] * len(envelopes)',
                "return [Sent()] * len(envelopes)",
            ),
        ),
    ),
    Mutant(
        "Unavailable spends an attempt, with one route",
        "R18",
        "a_broker_that_is_away_costs_no_attempt",
        (
            Change(
                "sender.py",
                "import Envelope, Outcome, Sent, Unavailable",
                "import Envelope, Failed, Outcome, Sent, Unavailable",
            ),
            Change(
                "sender.py",
                "or (len(self._breakers) == 1 and not outcome.until_told):\n                return UNSENT",
                ":\n                return UNSENT\n            outcome = Failed(outcome.code)",
            ),
        ),
    ),
    Mutant(
        "Unavailable spends an attempt, with two routes",
        "R18",
        "one_broker_of_two_that_is_away_costs_no_attempt",
        (Change("verdict.py", "spent=False", "spent=True"),),
    ),
    Mutant(
        "goes on sending a batch whose settle was submitted",
        "R19",
        "a_settle_that_was_refused_is_repeated",
        (
            Change(
                "relay.py",
                "verdicts = await self._sender.carry(claims, self._may_send)",
                "late = asyncio.create_task(self._sender.carry(claims, self._may_send)); await asyncio.sleep(0.3)\n"
                "        verdicts = late.result() if late.done() else {}",
            ),
        ),
    ),
    Mutant(
        "settle error: batch forgotten, claim stays, no reconcile",
        "R21",
        "a_settle_that_was_refused_is_repeated",
        (
            Change("settler.py", "await asyncio.sleep(PAUSE_SECONDS)\n                continue", "return []"),
            NO_RECONCILE,
        ),
    ),
    Mutant(
        "settle error: batch forgotten, with reconcile",
        "R21",
        "a_settle_that_was_refused_is_repeated",
        (Change("settler.py", "await asyncio.sleep(PAUSE_SECONDS)\n                continue", "return []"),),
    ),
    Mutant(
        "repeats a settle without a pause",
        "R21",
        "a_database_that_is_away_is_not_hammered",
        (Change("settler.py", "await asyncio.sleep(PAUSE_SECONDS)\n                continue", "continue"),),
    ),
    Mutant("claim answer lost, no reconcile", "R22", "a_claim_whose_answer_was_lost_comes_back", (NO_RECONCILE,)),
    Mutant(
        "a message has one try more than it was given",
        "R23",
        "a_message_has_as_many_tries_as_it_was_given",
        (Change("verdict.py", "policy.decide(attempts + 1,", "policy.decide(attempts,"),),
    ),
    Mutant(
        "rejected is retried",
        "R23",
        "a_rejected_message_is_not_tried_again",
        (Change("verdict.py", "return Buried(code, error, park=park)", "return Retry(PAUSE, code, error)"),),
    ),
    Mutant(
        "expired is sent",
        "R23",
        "what_is_past_its_time_is_not_sent",
        (Change("sender.py", "and not claimed.expired and", "and"),),
    ),
    Mutant(
        "a cancellation from inside ends the trip quietly",
        "R26",
        "what_is_cancelled_from_inside_is_a_failed_try",
        (
            Change("breaker.py", "with contained():", "if True:"),
            Change("claims.py", "if cancelled:", "if cancelled and False:"),
        ),
    ),
    Mutant(
        "a cancelled trip keeps its lane",
        "R26",
        "a_trip_that_is_cancelled_lets_go_of_its_lane",
        (Change("claims.py", "if cancelled:", "if cancelled and False:"),),
    ),
    Mutant(
        "the heartbeat ends quietly",
        "R26",
        "a_relay_whose_heartbeat_ends_ends_too",
        (Change("relay.py", "beating.add_done_callback(self._heart_stopped)", "pass"),),
    ),
    Mutant(
        "clean stop drops its batch",
        "R24",
        "a_clean_stop_settles_what_it_sent",
        (
            Change(
                "relay.py",
                "await asyncio.gather(*self._trips, beating, watching, return_exceptions=True)",
                "[task.cancel() for task in self._trips]; await asyncio.gather(beating, return_exceptions=True)",
            ),
        ),
    ),
    Mutant(
        "clean stop keeps its lanes",
        "R24",
        "a_clean_stop_settles_what_it_sent",
        (Change("heartbeat.py", "await self.release(self._owned.epochs)", "pass"),),
    ),
    Mutant(
        "release before drained",
        "R24",
        "lanes_are_shared_and_handed_over_drained",
        (Change("owned_lanes.py", "if held.leaving and not held.busy}", "if held.leaving}"),),
        outbox=ReleasesBeforeItIsDrained,
    ),
    Mutant(
        "never hands over",
        "R24",
        "lanes_are_shared_and_handed_over_drained",
        (Change("heartbeat.py", "leaving = self._owned.to_hand_over(share)", "leaving = {}"),),
    ),
]
