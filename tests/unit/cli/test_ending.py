"""`postroom consume` and `postroom relay` end when they are told to, whatever a handler or a function does."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.commands import POSTROOM, Popen
from tests.unit.cli.inboxes import billing, consume
from tests.unit.cli.running import Desk

HANGING = {
    "in a thread": "def hang(message, tx):\n    said()\n    time.sleep(600)",
    "in the loop": "async def hang(message, tx):\n    said()\n    await asyncio.sleep(600)",
    "stubborn": """
async def hang(message, tx):
    said()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
""",
    "blocking the loop": "async def hang(message, tx):\n    said()\n    time.sleep(600)",
}
APP = """
import asyncio, time
from billing import inbox

inbox.handlers.clear()

def said():
    print("HANDLING", flush=True)

{hang}

inbox.on("order.paid")(hang)
"""
FUNCTION = """
import time

def send(message):
    print("HANDLING", flush=True)
    time.sleep(600)

async def block(message):
    print("HANDLING", flush=True)
    time.sleep(600)
"""


@contextmanager
def started(desk: Desk, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A service that hangs in a handler."""
    running = Popen(
        [*POSTROOM, *command],
        cwd=desk.folder,
        env=desk.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert any(line.startswith("HANDLING") for line in running.stdout)
        yield running
    finally:
        running.kill()
        running.communicate()


def hanging(desk: Desk, how: str) -> None:
    billing(desk, many=1)
    (desk.folder / "hanging.py").write_text(APP.format(hang=HANGING[how]))


@pytest.mark.parametrize("how", ["in a thread", "in the loop"])
def test_after_the_grace_period_a_handler_that_hangs_is_abandoned_and_named(desk: Desk, how: str) -> None:
    hanging(desk, how)
    with started(desk, *consume()[:-2], "--app", "hanging:inbox", "--grace", "500ms") as running:
        running.terminate()
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "received 1, abandoned 1" in out
    assert "00000000-0000-4000-8000-000000000001 (order.paid, key order-7) is abandoned" in err
    assert desk.execute("SELECT count(*) FROM inbox") == [(0,)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", [*HANGING])
def test_a_second_signal_ends_it_at_once(desk: Desk, how: str, number: signal.Signals) -> None:
    hanging(desk, how)
    with started(desk, *consume()[:-2], "--app", "hanging:inbox") as running:
        running.send_signal(number)
        time.sleep(0.3)  # two of the same kind at the same moment are one
        assert running.poll() is None, "the first one waits for what is being handled"
        running.send_signal(number)
        _, err = running.communicate(timeout=20)
    assert running.returncode == 128 + number
    assert err.splitlines()[-1].startswith("error: ended at once")


@pytest.mark.parametrize("function", ["send", "block"])
def test_a_second_signal_ends_a_relay_at_once(desk: Desk, function: str) -> None:
    (desk.folder / "sending.py").write_text(FUNCTION)
    desk("put", "order.paid")
    with started(
        desk, "relay", "--to", f"local://sending:{function}", "--send-timeout", "100s", "--lease", "300s"
    ) as running:
        running.terminate()
        time.sleep(0.3)
        assert running.poll() is None
        running.terminate()
        _, err = running.communicate(timeout=20)
    assert running.returncode == 128 + signal.SIGTERM
    assert "ended at once" in err


def test_a_grace_that_is_no_time_is_refused(desk: Desk) -> None:
    billing(desk)
    desk(*consume("--grace", "soon")).refuses("'soon' is not a valid duration", code=2)
