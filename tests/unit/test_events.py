from __future__ import annotations

import ast
import dataclasses
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

import pytest

from postroom import events
from postroom.events import (
    BatchClaimed,
    Event,
    LanesLost,
    LanesTaken,
    Listeners,
    MessageBuried,
    MessageRetried,
    MessagesPut,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PUT = MessagesPut(count=3)
CLAIMED = BatchClaimed(count=2, lanes=1, seconds=0.1)


def broken(event: Event) -> None:
    raise RuntimeError("no disk left")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="postroom.events"):
        yield caplog


def test_each_listener_hears_each_event_in_order() -> None:
    first: list[Event] = []
    second: list[Event] = []
    listeners = Listeners(first.append, second.append)
    listeners(PUT)
    listeners(CLAIMED)
    assert first == second == [PUT, CLAIMED]


def test_a_listener_added_later_hears_what_comes_after() -> None:
    heard: list[Event] = []
    listeners = Listeners()
    listeners(PUT)
    listeners.add(heard.append)
    listeners(CLAIMED)
    assert heard == [CLAIMED]


def test_a_listener_may_add_another_while_it_listens() -> None:
    heard: list[Event] = []
    listeners = Listeners()
    listeners.add(lambda _: listeners.add(heard.append))
    listeners(PUT)
    assert heard == []


def test_listeners_can_be_asked_whether_anybody_listens() -> None:
    assert not Listeners()
    assert Listeners(broken)


def test_listeners_listen_to_other_listeners() -> None:
    heard: list[Event] = []
    Listeners(Listeners(heard.append))(PUT)
    assert heard == [PUT]


def test_a_broken_listener_harms_neither_the_caller_nor_the_others(log: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    Listeners(broken, heard.append)(PUT)
    assert heard == [PUT]


def test_a_broken_listener_is_told_of_once_with_its_traceback(log: pytest.LogCaptureFixture) -> None:
    listeners = Listeners(broken)
    for _ in range(3):
        listeners(PUT)
    [record] = log.records
    assert "failed at MessagesPut" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no disk left"


def test_two_broken_listeners_are_told_of_one_by_one(log: pytest.LogCaptureFixture) -> None:
    def broken_too(event: Event) -> None:
        raise RuntimeError

    Listeners(broken, broken_too)(PUT)
    assert len(log.records) == 2


def test_a_broken_listener_that_has_no_hash_harms_nobody(log: pytest.LogCaptureFixture) -> None:
    @dataclasses.dataclass
    class Unhashable:
        heard: int = 0

        def __call__(self, event: Event) -> None:
            raise RuntimeError

    Listeners(Unhashable())(PUT)
    assert len(log.records) == 1


def test_an_idempotency_key_stays_out_of_the_log_of_a_broken_listener(log: pytest.LogCaptureFixture) -> None:
    buried = MessageBuried(
        id=UUID(int=1), type="order.paid", attempts=6, code="MAX_ATTEMPTS", idempotency_key="card-4711"
    )
    Listeners(broken)(buried)
    assert "card-4711" not in log.text


def test_a_request_to_stop_passes_through() -> None:
    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Listeners(stop)(PUT)


def test_the_list_of_events_is_closed_and_whole() -> None:
    def is_event(thing: Any) -> bool:
        return isinstance(thing, type) and dataclasses.is_dataclass(thing) and not thing.__name__.startswith("_")

    assert set(get_args(Event)) == set(filter(is_event, vars(events).values()))


def test_each_event_is_made_somewhere_and_has_its_place_in_the_reference() -> None:
    """Nothing is promised that never happens."""
    source = Path(events.__file__).parent
    calls = (
        node.func
        for file in source.rglob("*.py")
        if "testing" not in file.parts
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    )
    made = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    names = {event.__name__ for event in get_args(Event)}
    assert names <= made, f"never made: {names - made}"
    page = (source.parents[1] / "docs/reference/events.md").read_text()
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == names


def test_events_of_different_kinds_are_never_equal() -> None:
    kinds: list[Event] = [LanesTaken(owner="a", lanes=(1,)), LanesLost(owner="a", lanes=(1,))]
    assert kinds[0] == LanesTaken(owner="a", lanes=(1,))
    assert kinds[0] != kinds[1]


def test_an_event_cannot_be_changed() -> None:
    retried = MessageRetried(id=UUID(int=1), type="t", attempts=1, code="HTTP_503", delay=timedelta(seconds=5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(retried, "attempts", 2)  # noqa: B010
