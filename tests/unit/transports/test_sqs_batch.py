"""What goes together: ten at most, not more than a request may hold, and never two of one key."""

from __future__ import annotations

from postroom.contracts.transport import KEY_STOPPED, NOT_STARTED, Failed, Rejected, Sent, Unavailable
from postroom.transports.sqs.batch import Letter, Plan
from postroom.transports.sqs.connection import Queue

QUEUE = Queue("orders.fifo", "http://sqs/1/orders.fifo", 300_000, 30, {})
OTHER = Queue("mail.fifo", "http://sqs/1/mail.fifo", 300_000, 30, {})
SENT, BROKEN, TOO_LARGE = Sent(), Failed("INTERNAL"), Rejected("PAYLOAD_TOO_LARGE")


def plan_of(*keys: str | None, size: int = 100) -> Plan:
    return Plan([Letter(key, QUEUE, size) for key in keys])


def packs(plan: Plan) -> list[list[int]]:
    return list(iter(plan.next, None))


def test_ten_go_together() -> None:
    assert [len(pack) for pack in packs(plan_of(*[None] * 23))] == [10, 10, 3]


def test_two_of_a_key_never_go_together_and_the_second_follows_when_the_first_was_sent() -> None:
    plan = plan_of("a", "a", "b", "a")
    assert packs(plan) == [[0, 2]]
    plan.settle(0, SENT)
    assert packs(plan) == [[1]]
    plan.settle(1, SENT)
    plan.settle(2, SENT)
    assert packs(plan) == [[3]]


def test_behind_one_that_was_not_sent_its_key_stops_and_no_other() -> None:
    plan = plan_of("a", "a", "b", "b")
    assert packs(plan) == [[0, 2]]
    plan.settle(0, BROKEN)
    plan.settle(2, SENT)
    assert packs(plan) == [[3]]
    assert plan.outcomes == [BROKEN, KEY_STOPPED, SENT, NOT_STARTED]


def test_a_message_that_cannot_go_stops_its_key_when_its_turn_comes() -> None:
    plan = Plan([Letter("a", QUEUE), Letter("a", TOO_LARGE), Letter("a", QUEUE), Letter(None, TOO_LARGE)])
    assert packs(plan) == [[0]]
    assert plan.outcomes == [NOT_STARTED, NOT_STARTED, NOT_STARTED, TOO_LARGE]
    plan.settle(0, SENT)
    assert packs(plan) == []
    assert plan.outcomes == [SENT, TOO_LARGE, KEY_STOPPED, TOO_LARGE]


def test_a_request_holds_no_more_than_it_may() -> None:
    assert packs(plan_of(*[None] * 5, size=140_000)) == [[0, 1], [2, 3], [4]]
    assert packs(plan_of(None, None, size=300_000)) == [[0], [1]]


def test_a_request_goes_to_one_queue_and_no_queue_waits_for_another() -> None:
    plan = Plan([Letter(None, QUEUE if place < 25 else OTHER) for place in range(30)])
    assert [pack[0] for pack in packs(plan)] == [0, 25, 10, 20]


def test_what_was_refused_in_company_goes_alone() -> None:
    plan = plan_of("a", "b", "b")
    (pack,) = packs(plan)
    plan.go_alone(pack)
    assert packs(plan) == [[0], [1]]


def test_when_nothing_can_go_any_more_it_is_said_of_what_would_have_gone() -> None:
    away = Unavailable()
    plan = plan_of("a", "a", None)
    plan.stop(away)
    assert plan.outcomes == [away, KEY_STOPPED, away]
