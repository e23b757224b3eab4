from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import ConfigError
from postroom.retry import (
    FACTOR_MAX,
    FIRST_MIN,
    JITTER_MAX,
    MAX_ATTEMPTS,
    WAIT_MAX,
    Backoff,
    Exponential,
    GiveUp,
    RetryIn,
    RetryPolicy,
    Table,
    parse_backoff,
)

ENDLESS = 10**12

rolls = st.floats(0, 1, exclude_max=True)
jitters = st.floats(0, JITTER_MAX)
tries = st.integers(1, 10**9)
waits = st.timedeltas(timedelta(0), WAIT_MAX)


@st.composite
def exponentials(draw: st.DrawFn) -> Exponential:
    span = st.timedeltas(FIRST_MIN, WAIT_MAX)
    first, ceiling = sorted((draw(span), draw(span)))
    return Exponential(first, ceiling, draw(st.floats(1, FACTOR_MAX)), draw(jitters))


tables = st.builds(Table, st.lists(waits, min_size=1, max_size=8).map(tuple), jitters)
backoffs: st.SearchStrategy[Backoff] = exponentials() | tables


def wait(policy: RetryPolicy, attempts: int, *, roll: float = 0, retry_after: timedelta | None = None) -> timedelta:
    decision = policy.decide(attempts, roll=roll, retry_after=retry_after)
    assert isinstance(decision, RetryIn)
    return decision.delay


def waits_in_seconds(policy: RetryPolicy) -> list[float]:
    return [wait(policy, attempts).total_seconds() for attempts in range(1, policy.max_attempts)]


@given(backoffs, tries, rolls)
def test_a_wait_is_never_negative_and_never_above_the_ceiling(backoff: Backoff, attempts: int, roll: float) -> None:
    longest = backoff.ceiling if isinstance(backoff, Exponential) else max(backoff.delays)
    assert timedelta(0) <= wait(RetryPolicy(backoff, ENDLESS), attempts, roll=roll) <= longest


@given(exponentials(), tries, rolls)
def test_no_roll_turns_a_wait_into_none(backoff: Exponential, attempts: int, roll: float) -> None:
    assert wait(RetryPolicy(backoff, ENDLESS), attempts, roll=roll) >= FIRST_MIN * (1 - JITTER_MAX)


@given(exponentials(), st.integers(1, 2_000))
def test_before_jitter_a_wait_is_never_shorter_than_the_one_before(backoff: Exponential, attempts: int) -> None:
    assert backoff.first <= backoff.delay(attempts) <= backoff.delay(attempts + 1) <= backoff.ceiling


@given(tables, tries)
def test_the_last_delay_of_a_table_repeats(table: Table, attempts: int) -> None:
    assert table.delay(len(table.delays) + attempts) == table.delays[-1]


@pytest.mark.parametrize("attempts", [10**9, 10**400])
@pytest.mark.parametrize("factor", [1.0001, 2.0, FACTOR_MAX])
def test_a_huge_count_of_attempts_waits_for_the_ceiling(attempts: int, factor: float) -> None:
    backoff = Exponential(timedelta(seconds=2), timedelta(minutes=10), factor)
    assert backoff.delay(attempts) == timedelta(minutes=10)


@given(backoffs, st.integers(1, 50), st.integers(1, 100))
def test_after_the_last_attempt_there_is_no_other(backoff: Backoff, cap: int, attempts: int) -> None:
    gave_up = RetryPolicy(backoff, cap).decide(attempts) == GiveUp(MAX_ATTEMPTS)
    assert gave_up == (attempts >= cap)


@given(backoffs, tries, rolls, st.timedeltas())
def test_a_server_can_lengthen_a_wait_up_to_a_day_and_never_shorten_it(
    backoff: Backoff, attempts: int, roll: float, retry_after: timedelta
) -> None:
    policy = RetryPolicy(backoff, ENDLESS)
    ours = wait(policy, attempts, roll=roll)
    asked = wait(policy, attempts, roll=roll, retry_after=retry_after)
    assert asked == max(ours, min(retry_after, WAIT_MAX)) <= WAIT_MAX


def test_a_server_cannot_ask_for_a_try_more_than_there_are() -> None:
    assert RetryPolicy.WORKER.decide(6, retry_after=timedelta(seconds=1)) == GiveUp(MAX_ATTEMPTS)


@given(backoffs, st.integers(1, 100))
def test_a_policy_reads_back_as_it_was_written(backoff: Backoff, cap: int) -> None:
    assert RetryPolicy.parse(str(backoff), max_attempts=cap) == RetryPolicy(backoff, cap)


def test_the_worker_waits_as_its_table_says() -> None:
    assert waits_in_seconds(RetryPolicy.WORKER) == [5, 10, 20, 40, 80]
    assert RetryPolicy.WORKER.backoff.delay(6) == timedelta(seconds=160)
    assert RetryPolicy.WORKER.backoff.jitter == 0


@pytest.mark.requirement("C3")
def test_transfers_wait_from_two_seconds_doubling_to_ten_minutes_five_times() -> None:
    policy = RetryPolicy.TRANSFERS
    assert waits_in_seconds(policy) == [2, 4, 8, 16]
    assert policy.backoff.delay(100) == timedelta(minutes=10)


def test_jitter_takes_away_its_share_of_the_delay() -> None:
    policy = RetryPolicy(Table((timedelta(seconds=10),), jitter=0.5))
    assert wait(policy, 1, roll=0.5) == timedelta(seconds=7.5)


def test_by_default_the_dice_is_thrown() -> None:
    policy = RetryPolicy(Exponential(timedelta(hours=1), timedelta(hours=1), jitter=JITTER_MAX), ENDLESS)
    assert len({policy.decide(1) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("5, 10,20", Table((timedelta(seconds=5), timedelta(seconds=10), timedelta(seconds=20)))),
        ("500ms,1h30m", Table((timedelta(milliseconds=500), timedelta(minutes=90)))),
        ("0", Table((timedelta(0),))),
        ("exp:2s..10m", Exponential(timedelta(seconds=2), timedelta(minutes=10))),
        ("exp:0.5..1.5*1.5~0", Exponential(timedelta(seconds=0.5), timedelta(seconds=1.5), 1.5, 0)),
    ],
)
def test_a_backoff_is_read_as_people_write_it(text: str, backoff: Backoff) -> None:
    assert parse_backoff(text) == backoff


@pytest.mark.parametrize(
    "text",
    ["", "5,,10", "-5", "soon", "exp:", "exp:2s", "exp:1..2..3", "exp:2s..10m*", "5*2", "5~x", "5~", "2..4"],
)
def test_a_backoff_nobody_can_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not understood; write delays like 5,10,20"):
        parse_backoff(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("25h", "backoff has a delay of 1d1h; it must be between 0s and 1d"),
        ("exp:0s..1s", "it must start at 1ms or more"),
        ("exp:2s..1s", "backoff goes from 2s to 1s"),
        ("exp:1s..2d", "to 1d at most"),
        ("exp:1s..2s*0.5", "backoff factor is 0.5; it must be between 1 and 100"),
        ("5~0.95", "backoff jitter is 0.95; it must be between 0 and 0.9"),
        ("5~nan", "backoff jitter is nan"),
    ],
)
def test_a_backoff_beyond_a_limit_is_refused_with_the_limit(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_backoff(text)


def test_a_table_without_a_delay_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a delay"):
        Table(())


@pytest.mark.parametrize("cap", [0, -1, True])
def test_a_cap_below_one_is_refused(cap: int) -> None:
    with pytest.raises(ConfigError, match="max_attempts is"):
        RetryPolicy(Table((timedelta(0),)), cap)
