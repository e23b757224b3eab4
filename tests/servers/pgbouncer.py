"""PgBouncer in front of the run's PostgreSQL: transaction pooling, every database, everybody let in."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tests.servers import apt, unprivileged
from tests.servers.guard import Command, log, serve
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.model import Place, Source

PACKAGE = "pgbouncer"

CONFIGURATION = """\
[databases]
* = {target}
[pgbouncer]
listen_addr = {loopback}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 10
server_idle_timeout = 5
ignore_startup_parameters = extra_float_digits
"""


def installed(place: Place) -> Found:
    """The installed one."""
    binary = shutil.which(PACKAGE, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"]))
    if binary is None:
        raise NotHere("PgBouncer is not installed.")
    return launch(place, Path(binary))


def packaged(place: Place) -> Found:
    """The system's package, installed now. Its service does not start."""
    place.need("postgres")  # nothing is installed in vain
    apt.install(PACKAGE)
    return installed(place)


def unpacked(place: Place) -> Found:
    """The system's package, unpacked into a private prefix."""
    prefix = apt.unpack(PACKAGE)
    return launch(place, prefix / "usr/sbin/pgbouncer", apt.libraries(prefix))


SOURCES: Mapping[str, Source] = {"installed": installed, "apt": packaged, "unpacked": unpacked}


def launch(place: Place, binary: Path, libraries: str = "") -> Found:
    """PgBouncer in front of the run's PostgreSQL; its URL leads to that server's own database."""
    behind = place.need("postgres").url
    home = unprivileged.private(place.directory / "home")
    env = unprivileged.environment(HOME=os.fspath(home), LD_LIBRARY_PATH=libraries)
    file = home / "pgbouncer.ini"
    version = re.search(r"\d[\w.]+", unprivileged.run([binary, "--version"], home, env).stdout)

    def command(port: int) -> Command:
        file.touch(mode=0o600)  # it may hold a password
        file.write_text(CONFIGURATION.format(target=_target(behind), loopback=LOOPBACK, port=port))
        unprivileged.give(file)
        # The signal that ends every version at once; since 1.23 SIGTERM waits for the clients to leave.
        return Command([binary, file], home, env, signal.SIGQUIT)

    def ready(port: int) -> str | None:
        listens = f"listening on {LOOPBACK}:{port}" in log(place.directory)
        return version[0] if version and listens else None

    port, number = serve(place, command, ready)
    return Found(through(behind, port), number)


def through(url: str, port: int) -> str:
    """The URL of the same database by way of the PgBouncer at `port`."""
    parts = urlsplit(url)
    return f"postgresql://{parts.username or 'postgres'}@{LOOPBACK}:{port}{parts.path}"


def _target(url: str) -> str:
    parts = urlsplit(url)
    words = {
        "host": parts.hostname or LOOPBACK,
        "port": str(parts.port or 5432),
        "user": parts.username or "postgres",
    }
    if parts.password:
        words["password"] = parts.password
    return " ".join("{}='{}'".format(key, unquote(word).replace("'", "''")) for key, word in words.items())
