"""`postroom consume`, between a broker in memory and SQLite. What happens when it is killed stands in the scenarios."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.commands import POSTROOM, Popen
from tests.servers.nats_server import NatsServer
from tests.servers.ports import free_port
from tests.servers.queues import fresh_queue, with_queue
from tests.servers.rabbit_queues import fresh_name, make_queue, remove
from tests.servers.streams import fresh_stream
from tests.unit.cli.inboxes import BAD, SOURCE, billing, consume
from tests.unit.cli.running import Desk

LINE = f"inbox billing: {SOURCE} to sqlite:///shop.db, order.paid"


def test_each_message_is_handled_once_and_the_end_says_what_became_of_them(desk: Desk) -> None:
    billing(desk, many=2)
    done = desk(*consume())
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [LINE, "received 2, handled 1, known 1"]
    assert desk.execute("SELECT amount FROM charges") == [(12,)]
    again = desk(*consume())
    assert again.out.splitlines()[1:] == ["received 2, known 2"]
    assert desk.execute("SELECT amount FROM charges") == [(12,)]


def test_with_something_dead_the_exit_code_is_3_and_the_way_on_is_said(desk: Desk) -> None:
    billing(desk)
    done = desk(*consume())
    assert done.code == 3
    assert done.out.splitlines()[1:] == [
        "received 4, handled 1, known 1, skipped 1, dead 1",
        "something is dead: see `postroom inbox list`.",
    ]
    (line,) = done.err.splitlines()
    assert line.partition(" ERROR ")[2] == (
        f"postroom.inbox: Message {BAD} (order.paid, key order-8) is dead: "
        "NEGATIVE (business): RejectMessage: a negative amount"
    )


def test_a_module_in_the_folder_is_found_by_a_program_that_does_not_look_there_itself(desk: Desk) -> None:
    """As `postroom` that pip installs: with -P, Python does not look in the folder where it is started."""
    billing(desk, many=0)
    command = [sys.executable, "-P", "-m", "postroom", *consume()]
    done = subprocess.run(command, cwd=desk.folder, env=desk.environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, [LINE, "received 0"]), done.stderr


def test_how_many_messages_may_be_in_hand_has_a_limit(desk: Desk) -> None:
    billing(desk, many=0)
    for many in ("0", "100001"):
        desk(*consume("--prefetch", many)).refuses("1<=x<=100000", code=2)
    assert desk(*consume("--prefetch", "100000")).code == 0


def test_with_nothing_to_receive_it_ends_with_0(desk: Desk) -> None:
    billing(desk, many=0)
    done = desk(*consume())
    assert (done.code, done.out.splitlines()) == (0, [LINE, "received 0"])


def test_a_queue_without_groups_is_received_from_and_a_group_there_is_refused(desk: Desk, sqs_url: str) -> None:
    billing(desk, many=0)
    with fresh_queue(sqs_url) as queue:
        source = with_queue(sqs_url, queue)
        done = desk(*consume("--from", source))
        assert (done.code, done.out.splitlines()[1:]) == (0, ["received 0"]), done
        desk(*consume("--from", source, "--group", "billing")).refuses("cannot honour group: leave it out", code=2)


async def test_a_queue_that_the_url_names_is_received_from_and_a_group_there_is_refused(
    desk: Desk, amqp_url: str
) -> None:
    billing(desk, many=0)
    queue = fresh_name()
    source = f"{amqp_url}?queue={queue}"
    await make_queue(amqp_url, queue)
    try:
        done = await asyncio.to_thread(desk, *consume("--from", source))
        refused = await asyncio.to_thread(desk, *consume("--from", source, "--group", "billing"))
    finally:
        await remove(amqp_url, queue)
    assert (done.code, done.out.splitlines()[1:]) == (0, ["received 0"]), done
    refused.refuses("leave out the group", code=2)


@contextmanager
def consuming(desk: Desk, *options: str) -> Iterator[subprocess.Popen[str]]:
    """As a service: a process of its own that ends when it is told to."""
    command = [*POSTROOM, *consume()[:-2], *options]
    running = Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_says_what_became_of_what_came(desk: Desk, number: signal.Signals) -> None:
    billing(desk)
    with consuming(desk) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f"{LINE}\n"
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    # Without --until-idle it is a service that was told to end, and did.
    assert running.returncode == 0, err
    assert out.startswith("received ")
    assert "Traceback" not in err


def test_a_broker_that_is_away_at_the_start_is_waited_for(desk: Desk, nats_server: NatsServer) -> None:
    billing(desk, many=0)
    with fresh_stream(nats_server.url) as stream:
        source = f"{nats_server.url}/{stream}"
        nats_server.kill()
        with consuming(desk, "--from", source) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            assert "postroom.inbox.worker: Nothing can be received: No NATS answers" in running.stderr.readline()
            nats_server.start_again()
            assert running.stdout.readline().startswith(f"inbox billing: {source} to ")
            running.terminate()
            assert running.communicate(timeout=60)[0] == "received 0\n"
    assert running.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_while_it_waits_for_a_broker_it_ends(desk: Desk, number: signal.Signals) -> None:
    billing(desk, many=0)
    with consuming(desk, "--from", f"nats://127.0.0.1:{free_port()}/ORDERS") as running:
        assert running.stderr is not None
        assert "postroom.inbox.worker: Nothing can be received: " in running.stderr.readline()
        running.send_signal(number)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, "received 0\n")
    assert "Traceback" not in err


TOLD = """
import asyncio, os, signal
from billing import inbox
from postroom.transports.memory import MemoryConsumer

connect = MemoryConsumer.open

async def told_meanwhile(self):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.1)
    await connect(self)

MemoryConsumer.open = told_meanwhile
"""


def test_told_to_end_while_it_connects_it_ends(desk: Desk) -> None:
    billing(desk, many=0)
    (desk.folder / "told.py").write_text(TOLD)
    with consuming(desk, "--app", "told:inbox") as running:
        out, err = running.communicate(timeout=20)
    assert running.returncode == 0, err
    assert out.endswith("received 0\n")


def test_a_job_says_at_once_that_there_is_no_broker(desk: Desk) -> None:
    billing(desk, many=0)
    desk(*consume("--from", f"nats://127.0.0.1:{free_port()}/ORDERS")).refuses("No NATS answers", code=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--app", "nowhere:inbox"], "nowhere:inbox cannot be loaded: No module named 'nowhere'; check the name"),
        (["--app", "billing:outbox"], "billing:outbox cannot be loaded: module 'billing' has no attribute 'outbox'"),
        (["--app", "billing:no_inbox"], "billing:no_inbox is a str, not an Inbox"),
        (["--app", "billing"], "billing names nothing: write module:inbox"),
        (["--app", "broken:inbox"], "broken:inbox cannot be loaded: ZeroDivisionError: division by zero; fix"),
        (["--from", "null://"], "Nothing can be received from null://; give a URL like memory://"),
        (["--from", "carrier-pigeon://home"], "knows no transport carrier-pigeon://"),
        (["--from", "memory://"], "a new broker with nothing in it; name one"),
        (["--until-idle", "soon"], "'soon' is not a valid duration; write it like 500ms"),
        (["--handlers", "0"], "0 is not in the range"),
        (["--prefetch", "many"], "'many' is not a valid integer range"),
        (["--secret", "whsec_x"], "memory://shop/orders cannot honour secrets: leave it out"),
        (["--store", "memory://"], "There is no inbox on memory://: use sqlite://"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_in_a_sentence(desk: Desk, options: list[str], said: str) -> None:
    billing(desk)
    (desk.folder / "broken.py").write_text("1 / 0")
    desk(*consume(*options)).refuses(said, code=2)


@pytest.mark.parametrize("left_out", ["--from", "--app"])
def test_what_must_be_named_is_asked_for(desk: Desk, left_out: str) -> None:
    command = list(consume())
    at = command.index(left_out)
    desk(*command[:at], *command[at + 2 :]).refuses(f"Missing option '{left_out}'", "postroom consume --help", code=2)


def test_a_store_without_the_tables_is_refused_and_a_mistyped_one_is_not_made(empty: Desk) -> None:
    billing(empty)
    empty(*consume()).refuses("not in sqlite:///shop.db", "`postroom init --store sqlite:///shop.db`", code=1)
    empty(*consume("--store", "sqlite:///shp.db")).refuses("There is no file shp.db", code=1)
    assert not (empty.folder / "shp.db").exists()


def test_a_brokers_password_is_shown_nowhere(desk: Desk) -> None:
    billing(desk)
    refused = desk(*consume("--from", "nats://app:s3cr3t@broker/"))
    refused.refuses("names no NATS server and stream", code=2)
    assert "s3cr3t" not in refused.err


def test_the_help_says_what_is_promised_and_how_it_ends(empty: Desk) -> None:
    shown = " ".join(empty("consume", "--help").out.split())
    assert "a message delivered twice is handled once" in shown
    assert "Ctrl-C or SIGTERM ends it cleanly" in shown
    assert "Exit code 3: something is dead." in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import json\nimport no_such_driver\n", "No module named 'no_such_driver'"),
        ("from json import no_such_name\n\n", "cannot import name 'no_such_name'"),
        ("def helper():\n    return 1 / 0\nhelper()\n", "ZeroDivisionError: division by zero"),
        ("inbox = (\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_what_breaks_inside_your_module_is_told_with_file_and_line(desk: Desk, text: str, said: str) -> None:
    (desk.folder / "mine.py").write_text(text)
    line = 1 if "no_such_name" in text or text.count("\n") == 1 else 2
    desk("consume", "--from", "memory://x/y", "--app", "mine:inbox").refuses(
        said, f"mine.py line {line}.", "fix that module", code=2
    )
