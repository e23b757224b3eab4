"""Acknowledgements need few words, and never speak of what is still in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroom.transports.amqp.receiver import Unacknowledged


def tags_up_to(last: int) -> Unacknowledged:
    made = Unacknowledged()
    for tag in range(1, last + 1):
        made.add(tag)
    return made


def test_what_is_done_from_the_first_on_is_said_in_one_word() -> None:
    unacknowledged = tags_up_to(6)
    assert unacknowledged.settle([3, 1, 2, 5]) == [(3, True), (5, False)]
    assert unacknowledged.settle([6]) == [(6, False)]
    assert unacknowledged.settle([4]) == [(4, False)]


@given(st.lists(st.lists(st.integers(1, 12), unique=True), max_size=6))
def test_the_broker_hears_exactly_what_is_done(rounds: list[list[int]]) -> None:
    """*Multiple* speaks of all before it that are not acknowledged: never of one that is still in flight."""
    ours = tags_up_to(12)
    unacknowledged, done = set(range(1, 13)), set[int]()
    for each in rounds:
        new = [tag for tag in each if tag not in done]
        done |= set(new)
        for tag, multiple in ours.settle(new):
            assert tag in unacknowledged, "RabbitMQ closes a channel that acknowledges twice"
            unacknowledged -= {other for other in unacknowledged if other <= tag} if multiple else {tag}
        assert unacknowledged == set(range(1, 13)) - done
