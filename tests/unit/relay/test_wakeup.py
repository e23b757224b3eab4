"""How long is waited when there is nothing to do."""

from __future__ import annotations

from postroom.relay.wakeup import Backoff


def test_a_wait_of_a_moment_is_a_wait_until_something_happens() -> None:
    wait = Backoff(first=0.05, most=1)
    seen = [wait.waited]
    assert wait.next() == 0.05
    seen.append(wait.waited)
    wait.reset()
    seen.append(wait.waited)
    assert seen == [False, True, False]


def test_what_may_have_happened_makes_the_next_wait_short_and_forgets_none() -> None:
    wait = Backoff(first=1, most=5)
    assert [wait.next(), wait.next()] == [1, 2]
    wait.shorten()
    assert wait.waited
    assert [wait.next(), wait.next(), wait.next(), wait.next()] == [1, 2, 4, 5]


def test_the_first_wait_is_never_longer_than_the_longest() -> None:
    assert Backoff(first=9, most=5).next() == 5
