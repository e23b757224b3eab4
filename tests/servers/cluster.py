"""A PostgreSQL cluster of our own: made, run, and made ready for tests.

It trusts everybody on loopback except the role `locked`, whose password is checked by SCRAM. It forgets
everything in a crash of the machine (fsync=off) but commits as in production (synchronous_commit=on), which
logical decoding needs to see a commit at once.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.servers import unprivileged
from tests.servers.guard import Command, serve
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.model import Place

LOCKED = "locked"
LOCKED_PASSWORD = "the-right-password"

HBA = f"""\
host all,replication {LOCKED} {LOOPBACK}/32 scram-sha-256
host all,replication all {LOOPBACK}/32 trust
"""
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # a path of our length may not fit into a socket address
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "50",
    "max_replication_slots": "50",
    "checkpoint_timeout": "1h",
    "max_wal_size": "128MB",  # it may be in memory
    "password_encryption": "scram-sha-256",
}
INITDB = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]


def launch(place: Place, binaries: Path, libraries: str = "") -> Found:
    """A new cluster, run by these binaries."""
    home = unprivileged.private(place.directory / "home")
    env = unprivileged.environment(HOME=os.fspath(home), LD_LIBRARY_PATH=libraries)
    made = unprivileged.run([binaries / "initdb", "-D", home / "data", *INITDB], home, env)
    if made.returncode:
        raise NotHere(f"initdb failed: {' '.join((made.stderr or made.stdout).split())[:500]}")
    (home / "data/pg_hba.conf").write_text(HBA)
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]

    def command(port: int) -> Command:
        argv: list[str | Path] = [binaries / "postgres", "-D", home / "data", "-p", str(port), *settings]
        return Command(argv, home, env, signal.SIGQUIT)  # nothing in it is worth an orderly end

    port, version = serve(place, command, lambda port: _made_ready(port, home / "data"))
    return Found(_url(port), version)


def _url(port: int) -> str:
    return f"postgresql://postgres@{LOOPBACK}:{port}/postgres"


def _made_ready(port: int, data: Path) -> str | None:
    """The version of the server of `data`, with its roles; None if it does not answer, or another does."""
    import psycopg

    query = "select current_setting('data_directory'), current_setting('server_version')"
    try:
        with psycopg.connect(_url(port), autocommit=True, connect_timeout=2) as connection:
            where, version = connection.execute(query).fetchone() or ("", "")
            if where != os.fspath(data):
                return None
            connection.execute(f"create role {LOCKED} login password '{LOCKED_PASSWORD}'")
            return str(version)
    except psycopg.OperationalError:
        return None
