from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.running import Desk

from postroom import __version__

POSTROOM = [sys.executable, "-m", "postroom"]


def test_importing_postroom_imports_neither_click_nor_rich() -> None:
    modules = "import postroom, postroom.cli, postroom.outbox.outbox, postroom.stores"
    program = f"import sys; {modules}; print([m for m in ('click', 'rich') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_click_or_rich_the_extra_is_named(empty: Desk, missing: str) -> None:
    (empty.folder / f"{missing}.py").write_text(f"raise ModuleNotFoundError('No module named {missing}')")
    refused = empty("status", PYTHONPATH=str(empty.folder))
    assert refused.code == 1
    assert refused.err == "The command line needs click and rich: run pip install 'postroom[cli]'.\n"


def test_the_version_is_told(empty: Desk) -> None:
    assert empty("--version").out == f"postroom {__version__}\n"
    script = subprocess.check_output([Path(sys.executable).with_name("postroom"), "--version"], text=True)
    assert script == f"postroom {__version__}\n"


def test_a_command_that_is_none_is_wrong_use(empty: Desk) -> None:
    empty("stauts").refuses("stauts", "postroom --help", code=2)
    empty("--verson").refuses("--verson", "postroom --help", code=2)


def test_a_reader_that_leaves_early_is_no_error(desk: Desk) -> None:
    lines = json.dumps({"type": "a"}) + "\n"
    desk("put", "--jsonl", "-", stdin=lines.encode() * 5000)
    with subprocess.Popen(
        [*POSTROOM, "list", "--json"],
        cwd=desk.folder,
        env=desk.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_an_output_that_cannot_be_written_is_an_error(desk: Desk) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*POSTROOM, "status"],
            cwd=desk.folder,
            env=desk.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"error: No space left on device.\n")


def test_ctrl_c_while_reading_writes_nothing(desk: Desk) -> None:
    with subprocess.Popen(
        [*POSTROOM, "put", "--jsonl", "-", "--json"],
        cwd=desk.folder,
        env=desk.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # More than a pipe holds: once it is taken, the command is reading.
        process.stdin.write(b'{"type": "a"}\n' * 20_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"interrupted\n")
    assert desk.count == 0


def test_ctrl_c_while_waiting_for_the_database_writes_nothing(desk: Desk) -> None:
    other = sqlite3.connect(desk.folder / "shop.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    program = "import signal, threading, os; from postroom.cli import main; import sys; sys.argv = ['postroom', 'put', 'a.b'];"
    timer = "threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start(); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program + timer], cwd=desk.folder, env=desk.environment(), stderr=subprocess.PIPE
    )
    try:
        _, err = process.communicate(timeout=30)
    finally:
        other.close()
    assert (process.returncode, err) == (130, b"interrupted\n")
    assert desk.count == 0


def test_a_file_that_stays_locked_is_said(desk: Desk) -> None:
    other = sqlite3.connect(desk.folder / "shop.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        desk("put", "a.b").refuses("locked by another process", code=1)
        assert desk("status").code == 0
    finally:
        other.close()


BROKEN = """
import sys
from postroom.cli import main, status
def broken(session):
    raise RuntimeError(f"no way to {session.url}\\nat all")
status._look = broken
sys.argv = ["postroom", "status", "--store", "postgresql://app:s3cr3t%21@db/shop"]
main()
"""


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_unexpected_error_is_one_sentence_without_passwords(empty: Desk, debug: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN],
        env=empty.environment(POSTROOM_DEBUG=debug),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    sentence = "error: unexpected RuntimeError: no way to postgresql://app:***@db/shop at all; please report it; "
    assert done.stderr.splitlines()[-1] == sentence + "run with POSTROOM_DEBUG=1 for the traceback."
    assert ("Traceback" in done.stderr) == bool(debug)
    assert "s3cr3t" not in done.stderr


NOTED = """
import logging, sys
from postroom.cli import main, status
seen = status._look
async def noisy(session):
    for _ in range(2):
        logging.getLogger("postroom.stores").warning("the %s is odd\\x1b[2J", "clock")
    logging.getLogger("psycopg.pool").warning("connecting failed")
    logging.getLogger("postroom").info("fine")
    return await seen(session)
status._look = noisy
sys.argv = ["postroom", "status"]
main()
"""


def test_a_warning_of_the_library_is_one_note(desk: Desk) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTED],
        cwd=desk.folder,
        env=desk.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "note: the clock is odd\\x1b[2J\n"


def test_an_encoding_without_an_ellipsis_is_no_error(desk: Desk) -> None:
    desk("put", "a.b", "--key", "é" * 90)
    listed = desk("list", COLUMNS="80", PYTHONIOENCODING="ascii")
    assert (listed.code, listed.err) == (0, "")


def test_closed_streams_are_no_error(desk: Desk) -> None:
    for closing in ("exec >&-", "exec 2>&-", "exec <&- >&- 2>&-"):
        program = f'{closing}; exec "{sys.executable}" -m postroom put a.b'
        done = subprocess.run(
            ["sh", "-c", program], cwd=desk.folder, env=desk.environment(), capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert desk.count == 3


def test_a_misspelt_command_is_answered_with_the_nearest_one(empty: Desk) -> None:
    empty("stauts").refuses("'stauts'", "did you mean status?", code=2)
    empty("inbox", "lits").refuses("'lits'", "did you mean list?", code=2)


@pytest.mark.parametrize("spelling", [["--store", "sqlite:///shop.db"], ["--store=sqlite:///shop.db"]])
def test_options_of_a_command_may_stand_before_its_name(desk: Desk, spelling: list[str]) -> None:
    assert desk(*spelling, "status", "--json", store=None).code == 0
    assert desk(*spelling, "inbox", "status", "--json", store=None).code == 0
    assert desk("inbox", *spelling, "status", store=None).code == 0


def test_an_option_before_the_name_of_no_command_is_wrong_use(desk: Desk) -> None:
    desk("--store", "sqlite:///shop.db", store=None).refuses("--store", code=2)
    desk("--store", "sqlite:///shop.db", "stauts", store=None).refuses("did you mean status?", code=2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_learns_to_complete(empty: Desk, shell: str) -> None:
    script = empty("completion", shell)
    assert script.code == 0
    assert "_POSTROOM_COMPLETE" in script.out


def test_commands_and_options_are_completed(empty: Desk) -> None:
    words = empty(_POSTROOM_COMPLETE="bash_complete", COMP_WORDS="postroom req", COMP_CWORD="1")
    assert words.out.split() == ["plain,requeue"]
    options = empty(_POSTROOM_COMPLETE="bash_complete", COMP_WORDS="postroom list --st", COMP_CWORD="2")
    assert {"plain,--store", "plain,--status"} <= set(options.out.split())


def test_a_variable_that_is_none_of_ours_is_noted(desk: Desk) -> None:
    told = desk("status", POSTROOM_BATCHES="12")
    assert told.code == 0
    assert (
        told.err == "note: POSTROOM_BATCHES is set, but Postroom has no such variable; did you mean POSTROOM_BATCH?\n"
    )
    assert desk("status", POSTROOM_BATCH="12", POSTROOM_TEST_MYSQL="x", POSTROOM_REQUIRE_SERVERS="all").err == ""
