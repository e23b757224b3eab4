"""A wrong URL of a broker ends the start, though there is nothing to send; a broker that is away is waited for, aloud."""

from __future__ import annotations

import signal
import subprocess

import pytest
from tests.commands import POSTROOM, Popen
from tests.servers.nats_server import NatsServer
from tests.servers.rabbit import PASSWORD
from tests.servers.streams import create
from tests.unit.cli.inboxes import billing, consume
from tests.unit.cli.running import Desk, Outcome

FAILED = 1
"""Not 2, which stands for a wrong use: a supervisor that starts it again may find that somebody has mended the broker."""


def says(done: Outcome, *parts: str) -> None:
    """It ended at once, with one sentence on stderr that has all of these parts."""
    assert done.code == FAILED, done
    error = done.err.splitlines()[-1]
    assert error.startswith("error: ")
    assert error.endswith(".")
    assert "Traceback" not in done.err
    for part in parts:
        assert part in error, error


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((PASSWORD, "s3cr3t"), ("ACCESS_REFUSED", "correct the URL")),
        (("/?", "/no-such-vhost?"), ("vhost no-such-vhost not found", "correct the vhost")),
        (("127.0.0.1", "no-such-host.invalid"), ("no-such-host.invalid", "correct the URL")),
        (
            ("queue=orders", "queue=not-there"),
            ("no queue 'not-there'", "declare a queue, bind it to the exchange, then send"),
        ),
    ],
    ids=["password", "vhost", "host", "queue"],
)
def test_a_wrong_url_of_rabbitmq_ends_the_start_of_a_relay_with_nothing_to_send(
    desk: Desk, amqp_url: str, change: tuple[str, str], said: tuple[str, ...]
) -> None:
    desk("init")
    url = f"{amqp_url}?queue=orders"
    assert change[0] in url
    done = desk("relay", "--to", url.replace(*change))
    says(done, *said)
    assert "s3cr3t" not in done.err


def test_a_wrong_url_of_nats_ends_the_start_of_a_relay_and_of_a_receiver(desk: Desk, nats_url: str) -> None:
    billing(desk, many=0)
    for url, said in (
        (f"{nats_url}/NOT-THERE?subject=orders.paid", "There is no stream 'NOT-THERE'"),
        ("nats://no-such-host.invalid:4222/ORDERS?subject=orders.paid", "correct the URL"),
        (f"{nats_url.replace('nats://', 'tls://')}/ORDERS?subject=orders.paid", "offers no TLS"),
    ):
        says(desk("relay", "--to", url), said)
        says(desk(*consume()[:-2], "--from", url), said)


def test_a_relay_with_nothing_to_send_says_that_the_broker_is_away_and_starts_when_it_is_there(
    desk: Desk, nats_server: NatsServer
) -> None:
    desk("init")
    create(nats_server.url, "ORDERS", subjects=["orders.*"])
    nats_server.kill()
    command = [*POSTROOM, "relay", "--to", f"{nats_server.url}/ORDERS?subject=orders.paid"]
    running = Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(2)]
        assert "is paused: the broker is away" in lines[1], lines
        nats_server.start_again()
        put = desk("put", "order.paid", "--data", "1")
        assert put.code == 0, put
        assert any("goes on: the broker is back" in running.stdout.readline() for _ in range(20))
    finally:
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, "1 published" in out) == (0, True), (out, err)
