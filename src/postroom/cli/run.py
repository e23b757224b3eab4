"""One run of the command line: whatever happens becomes an exit code and, at most, one sentence."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import click
from click.shell_completion import shell_complete

from postroom.cli.app import app
from postroom.cli.completion import VARIABLE as COMPLETE
from postroom.cli.session import Session
from postroom.cli.stderr import say, showing_notes
from postroom.errors import ConfigError, InvalidMessage, PostroomError, TransportRefused

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
UNEXPECTED_MAX = 200
"""How much of an unexpected error's text is shown."""


def run(arguments: Sequence[str], session: Session | None = None, *, program: str = "postroom") -> int:
    """The exit code of this command. It raises nothing."""
    session = session or Session()
    _prepare_output()
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(app, {}, program, COMPLETE, instruction)
    try:
        with showing_notes():
            _command(arguments, session, program)
            sys.stdout.flush()
    except BrokenPipeError:  # `postroom list | head`: the reader has what it wanted
        _close_stdout()
        return DONE
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except Exception as exc:  # noqa: BLE001 - the last line of defence against a traceback
        code, sentence = _explained(exc)
        if os.environ.get("POSTROOM_DEBUG"):
            sys.stderr.write(session.scrub("".join(traceback.format_exception(exc))))
        say(f"error: {session.worded(session.scrub(sentence))}")
        _close_stdout()
        return code
    return DONE


def _prepare_output() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in `postroom status >&-`
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open to the end
    if isinstance(sys.stdout, TextIOWrapper):
        # What the terminal's encoding lacks is shown as an escape: better than no answer.
        sys.stdout.reconfigure(errors="backslashreplace")


def _command(arguments: Sequence[str], session: Session, program: str) -> None:
    # Not `app()`: click would answer Ctrl-C and a broken pipe in its own way, with its own exit codes.
    with app.make_context(program, list(arguments), obj=session) as context:
        app.invoke(context)


def _explained(exc: Exception) -> tuple[int, str]:
    match exc:
        case click.UsageError():
            command = exc.ctx.command_path if exc.ctx else "postroom"
            return WRONG_USE, f"{_ended(exc.format_message())} Try `{command} --help`."
        case click.ClickException():
            return FAILED, _ended(exc.format_message())
        case TransportRefused():
            return FAILED, str(exc)  # not wrong use: it may be right once somebody has fixed the broker
        case ConfigError() | InvalidMessage():
            return WRONG_USE, str(exc)
        case PostroomError():
            return FAILED, str(exc)
        case OSError(strerror=str()):
            name = f"{os.fsdecode(exc.filename)}: " if isinstance(exc.filename, str | bytes) else ""
            return FAILED, f"{name}{exc.strerror}."
        case _:
            said = f"{type(exc).__name__}: {exc}"[:UNEXPECTED_MAX]
            return FAILED, f"unexpected {said}; please report it; run with POSTROOM_DEBUG=1 for the traceback."


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _close_stdout() -> None:
    """Send what is still buffered nowhere: Python's own flush at the end would fail again, and say so."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
