"""MariaDB: given, already here, or from the system's packages."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tests.servers import apt, unprivileged
from tests.servers.guard import Command, serve
from tests.servers.model import Found, NotHere
from tests.servers.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pymysql

    from tests.servers.model import Place, Source

PACKAGE = "mariadb-server"
SETTINGS = {
    "bind-address": LOOPBACK,
    "skip-name-resolve": "1",
    "character-set-server": "latin1",  # what nobody should depend on
    "default-time-zone": "-03:00",  # the same
    "log-bin": "binlog",
    "binlog-format": "MIXED",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-doublewrite": "0",
    "innodb-buffer-pool-size": "128M",
    "innodb-log-file-size": "96M",
    "max-connections": "300",
    "max-binlog-size": "64M",
    "expire-logs-days": "0",
    "plugin-maturity": "unknown",
}
"""It forgets everything in a crash of the machine, and its defaults are not what a client would like."""


def environment(place: Place) -> Found:
    """The server at POSTROOM_TEST_MARIADB."""
    return given("POSTROOM_TEST_MARIADB")


def given(variable: str) -> Found:
    """The server at the URL in this variable."""
    url = os.environ.get(variable)
    if not url or "://" not in url:
        raise NotHere(f"{variable} is not set to a URL.")
    version = _version(url)
    if version is None:
        raise NotHere("It does not let us in.")
    return Found(url, version)


def installed(place: Place) -> Found:
    """The one that is installed."""
    return _launch(place, Path("/"))


def packaged(place: Place) -> Found:
    """The system's package, installed now. It leaves no server running."""
    apt.install(PACKAGE)
    return installed(place)


def unpacked(place: Place) -> Found:
    """The system's package, unpacked into a private prefix."""
    prefix = apt.unpack("mariadb-server-core")
    return _launch(place, prefix, apt.libraries(prefix))


SOURCES: Mapping[str, Source] = {
    "environment": environment,
    "installed": installed,
    "unpacked": unpacked,
    "apt": packaged,
}
"""Unpacked before installed from packages: it needs neither root nor the many things that come with the package."""


def connect(url: str, **more: Any) -> pymysql.Connection[Any]:
    """A connection of PyMySQL to the database that this URL names."""
    import pymysql

    parts = urlsplit(url)
    if parts.hostname == LOOPBACK:
        # Else PyMySQL reads the system's certificates for each connection: 40 ms of processor time.
        more.setdefault("ssl_disabled", True)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path[1:] or None,
        **more,
    )


def _launch(place: Place, root: Path, libraries: str = "") -> Found:
    program = _program(root)
    home = unprivileged.private(place.directory / "home")
    env = unprivileged.environment(HOME=os.fspath(home), LD_LIBRARY_PATH=libraries)
    data = unprivileged.private(home / "data")
    common: list[str | Path] = [program, "--no-defaults", f"--datadir={data}", f"--lc-messages-dir={_share(root)}"]
    common += [f"--character-sets-dir={_share(root) / 'charsets'}", f"--plugin-dir={home}"]
    _bootstrap(common, root, home, env)
    settings = [f"--{name}={value}" for name, value in SETTINGS.items()]

    def command(port: int) -> Command:
        # A socket's path may be no longer than a hundred characters; ours is short, and nobody uses it.
        argv = [*common, *settings, f"--port={port}", "--socket=s", f"--pid-file={home / 'pid'}"]
        return Command(argv, home, env, signal.SIGKILL)  # nothing in it is worth an orderly end

    port, version = serve(place, command, lambda port: _version(_url(port), data))
    return Found(_url(port), version)


def _bootstrap(common: list[str | Path], root: Path, home: Path, env: Mapping[str, str]) -> None:
    """Make the system's tables, as mariadb-install-db does with more ado, and a user who needs no password."""
    names = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
    tables = "".join((_share(root) / name).read_text() for name in names)
    script = home / "bootstrap.sql"
    user = f"postroom@'{LOOPBACK}'"
    script.write_text(
        f"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n{tables}\nFLUSH PRIVILEGES;\n"
        f"CREATE USER {user};\nGRANT ALL ON *.* TO {user} WITH GRANT OPTION;\n"
    )
    unprivileged.give(script)
    words = " ".join(f"'{word}'" for word in [*common, "--bootstrap", "--skip-log-bin"])
    made = unprivileged.run(["/bin/sh", "-c", f"exec {words} < '{script}'"], home, env)
    if made.returncode:
        raise NotHere(f"mariadbd --bootstrap failed: {' '.join((made.stderr or made.stdout).split())[-500:]}")


def _program(root: Path) -> Path:
    for name in ("mariadbd", "mysqld"):
        if (path := root / "usr/sbin" / name).exists():
            return path
        if root == Path("/") and (found := shutil.which(name)):
            return Path(found)
    raise NotHere(f"There is no mariadbd in {root / 'usr/sbin'}.")


def _share(root: Path) -> Path:
    for name in ("mariadb", "mysql"):
        path = root / "usr/share" / name
        if (path / "mysql_system_tables.sql").exists():
            return path
    raise NotHere(f"There are no system tables of MariaDB in {root / 'usr/share'}.")


def _url(port: int) -> str:
    return f"mariadb://postroom@{LOOPBACK}:{port}/mysql"


def _version(url: str, data: Path | None = None) -> str | None:
    """The version of the server there, of this data; None if it does not answer, or another does."""
    import pymysql

    try:
        connection = connect(url, connect_timeout=2)
    except pymysql.Error:
        return None
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@datadir, @@version")
        where, version = cursor.fetchone() or ("", "")
    return str(version) if data is None or Path(where) == data else None
