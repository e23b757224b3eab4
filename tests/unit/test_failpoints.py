"""A failpoint stops a process at a named point: what is said of it, and at which time it comes by."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from postroom.telemetry import failpoints


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """At which points it stopped: here a process goes on."""
    stopped = list[str]()
    monkeypatch.setattr(signal, "pause", lambda: stopped.append("stopped"))
    yield stopped
    failpoints.arm(None)


@pytest.mark.parametrize(
    ("spec", "comes_by"), [("before-publish", 1), ("before-publish:1", 1), ("before-publish:2", 2)]
)
def test_it_stops_once_at_the_time_that_is_said_or_at_the_first(
    parked: list[str], capfd: pytest.CaptureFixture[str], spec: str, comes_by: int
) -> None:
    failpoints.arm(spec)
    for _ in range(comes_by - 1):
        failpoints.reach("before-publish")
    assert not parked
    failpoints.reach("after-publish")
    assert not parked, "that is another point"
    failpoints.reach("before-publish")
    assert capfd.readouterr().out == "PARKED before-publish\n"
    failpoints.reach("before-publish")
    assert len(parked) == 1


@pytest.mark.parametrize("spec", [None, "", "nowhere", "nowhere:2"])
def test_where_nothing_is_armed_nothing_stops(parked: list[str], spec: str | None) -> None:
    failpoints.arm(spec)
    for point in ("before-publish", "nowhere", ""):
        failpoints.reach(point)
    assert not parked
