"""Runs `python -m postroom …` in a fork of a process that has it loaded.

Thousands of tests type a command, and starting Python takes ten times longer than the command itself. A fork is a process
of its own all the same: with its own folder, environment, arguments, output, exit code and death. What decides how Python
starts (a variable PYTHON…) is not copied: such a command is started anew.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import click

PATIENCE_SECONDS = 60
POSTROOM = [sys.executable, "-m", "postroom"]
"""How a test names the program."""
INHERITED = -1
"""What subprocess calls a stream that stays as it is."""
LOADED = (
    "aiohttp", "asyncmy", "asyncpg", "click", "confluent_kafka", "msgspec", "psycopg", "psycopg_pool", "pymongo", "rich.live",
    "postroom.relay", "postroom.inbox", "postroom.stores.sqlite", "postroom.stores.sqlite.inbox", "postroom.stores.postgres",
    "postroom.stores.postgres.inbox", "postroom.stores.mysql", "postroom.stores.mongo", "postroom.transports.http",
    "postroom.transports.local", "postroom.transports.null", "postroom.cli.app",
)  # fmt: skip
"""What most commands need."""


def postroom(
    *arguments: str,
    cwd: str | Path,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    joined: bool = False,
    timeout: float = PATIENCE_SECONDS,
) -> subprocess.CompletedProcess[bytes]:
    """Run `postroom` with these arguments, and return what it said. *given* is what it reads from stdin.
    *joined*: stderr comes with stdout."""
    env = os.environ if env is None else env
    with contextlib.ExitStack() as stack:
        stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin.write(given)
        stdin.seek(0)
        stderr = stdout if joined else stderr
        code = _code(arguments, Path(cwd), env, (stdin, stdout, stderr), timeout)
        return subprocess.CompletedProcess(list(arguments), code, _all_of(stdout), b"" if joined else _all_of(stderr))


def _all_of(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, which makes a fork of `python -m postroom …`, and of any other program what it always does."""

    _line: socket.socket | None = None

    def _execute_child(self, args: Any, *rest: Any) -> None:
        executable, preexec, _, _, cwd, env, _, _, _, *files = rest[:15]
        env = os.environ if env is None else env
        is_ours = isinstance(args, list) and args[:3] == POSTROOM and not executable and not preexec
        if not is_ours or _pythons(env) != _pythons(os.environ):
            super()._execute_child(args, *rest)  # type: ignore[misc]  # the same
            return
        theirs = [fd if fd != INHERITED else number for number, fd in enumerate((files[0], files[3], files[5]))]
        self._line, self.pid = _begun(args[3:], Path(cwd or "."), env, theirs)
        self._child_created = True
        self._close_pipe_fds(*files)  # type: ignore[attr-defined]  # the same

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._line is None:
            answer: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]  # the same
            return answer
        self._line.setblocking(not wait_flags & os.WNOHANG)
        try:
            code = int.from_bytes(_exactly(self._line, 8), "big", signed=True)
        except BlockingIOError:
            return 0, 0
        self._line.close()
        return self.pid, -code if code < 0 else code << 8

    def _internal_poll(self, *args: Any, **kwargs: Any) -> int | None:
        if self._line is None:
            code: int | None = super()._internal_poll(*args, **kwargs)  # type: ignore[misc]  # the same
            return code
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]  # the same
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]  # the same
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]  # the same
        return self.returncode


def _code(arguments: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[IO[Any]], timeout: float) -> int:
    if _pythons(env) != _pythons(os.environ):
        stdin, stdout, stderr = files
        command = [*POSTROOM, *arguments]
        return subprocess.run(
            command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, timeout=timeout, check=False
        ).returncode
    line, pid = _begun(arguments, cwd, env, [file.fileno() for file in files])
    with line:
        line.settimeout(timeout)
        try:
            return int.from_bytes(_exactly(line, 8), "big", signed=True)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None


def _begun(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """Begin a command; return the line on which its exit code will come, and its process."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(_server())
    request = json.dumps({"arguments": list(arguments), "cwd": os.fspath(cwd.absolute()), "env": dict(env)}).encode()
    fds = array.array("i", files)
    line.sendmsg([len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    line.sendall(request)
    return line, int.from_bytes(_exactly(line, 8), "big")


def _pythons(env: Mapping[str, str]) -> dict[str, str]:
    """What decides how Python starts, and what a program's imports find."""
    names = (name for name in env if name.startswith(("PYTHON", "LD_", "LC_", "LANG")) and name != "PYTHON")
    return {name: env[name] for name in names}


def _exactly(line: socket.socket, number: int) -> bytes:
    got = b""
    while len(got) < number:
        more = line.recv(number - len(got))
        if not more:
            raise RuntimeError("the process that runs the commands has ended")
        got += more
    return got


@cache
def _server() -> str:
    """The address of the process that forks, started once for each worker of the tests."""
    folder = tempfile.mkdtemp(prefix="postroom-commands-")
    address = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.commands", str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
    atexit.register(_end, process, folder)
    return address


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    process.kill()
    process.wait()
    if process.stdin:
        process.stdin.close()
    with contextlib.suppress(OSError):
        Path(folder, "socket").unlink()
        Path(folder).rmdir()


# ── the process that forks ──


def main(listening: socket.socket) -> NoReturn:
    """Take requests for as long as the tests live: stdin ends with them."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    from postroom.cli.app import app

    for name in app.list_commands(click.Context(app)):
        app.get_command(click.Context(app), name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.set_blocking(0, False)
    listening.settimeout(5)
    while True:
        try:
            line, _ = listening.accept()
        except TimeoutError:
            with contextlib.suppress(BlockingIOError):
                if os.read(0, 1) == b"":
                    os._exit(0)
            continue
        if not os.fork():
            listening.close()
            line.settimeout(None)
            _serve(line)
        line.close()


def _serve(line: socket.socket) -> NoReturn:
    """Run one command in a fork of this fork, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, ancillary, _, _ = line.recvmsg(8, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    fds = array.array("i")
    fds.frombytes(ancillary[0][2])
    request = json.loads(_exactly(line, int.from_bytes(size, "big")))
    pid = os.fork()
    if not pid:
        line.close()
        _become(request, fds)
    for fd in fds:  # whoever reads what it says waits until it is closed everywhere
        os.close(fd)
    line.sendall(pid.to_bytes(8, "big"))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        line.sendall(code.to_bytes(8, "big", signed=True))
    os._exit(0)


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Be `python -m postroom` with these arguments."""
    code = 1
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.path[0] = request["cwd"]
        sys.argv = ["postroom", *request["arguments"]]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the same
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        from postroom.cli import main

        main()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # as Python does at its end: threads are waited for
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
