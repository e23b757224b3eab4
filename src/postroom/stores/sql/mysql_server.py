"""What MariaDB and MySQL must be like, and what whoever migrates locks there. It needs no driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple
from zlib import crc32

from postroom.config.tables import TableNames
from postroom.errors import StoreError

NEEDED = {"mariadb": (10, 6, 0), "mysql": (8, 0, 17)}
"""SKIP LOCKED and JSON_TABLE; on MySQL also defaults that are computed, and a collation that does not pad."""
SAFE_LOGS = ("ROW", "MIXED")
LOG_SETTINGS = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'binlog_format')"
NAMES = {"mariadb": "MariaDB", "mysql": "MySQL"}


class Version(NamedTuple):
    """A server."""

    family: Literal["mariadb", "mysql"]
    number: tuple[int, ...]

    @property
    def collation(self) -> str:
        """The one that compares byte for byte and pads nothing."""
        return "utf8mb4_nopad_bin" if self.family == "mariadb" else "utf8mb4_0900_bin"


def version_of(said: str, where: str) -> Version:
    """Out of what the server says as it greets us; StoreError when it is too old.

    >>> version_of("5.5.5-10.11.19-MariaDB-log", "")
    Version(family='mariadb', number=(10, 11, 19))
    """
    family: Literal["mariadb", "mysql"] = "mariadb" if "mariadb" in said.lower() else "mysql"
    # Old clients knew no two-digit version: MariaDB still puts a small one before its own.
    digits = re.match(r"(\d+)\.(\d+)\.(\d+)", said.removeprefix("5.5.5-") if family == "mariadb" else said)
    number = tuple(map(int, digits.groups())) if digits else (0,)
    if number < NEEDED[family]:
        needed = ".".join(map(str, NEEDED[family]))
        raise StoreError(
            f"{NAMES[family]} at {where} is version {'.'.join(map(str, number))}; Postroom needs {needed} or later."
        )
    return Version(family, number)


def require_safe_log(settings: Mapping[str, str], store: str) -> None:
    """Raise StoreError where statements are logged: SKIP LOCKED and random defaults come out otherwise on a replica."""
    found = {name.lower(): value.upper() for name, value in settings.items()}
    if found.get("log_bin") == "ON" and found.get("binlog_format", "ROW") not in SAFE_LOGS:
        raise StoreError(
            f"The database at {store} logs statements for its replicas, which would come out otherwise there: "
            "set binlog_format = ROW."
        )


def lock_name(database: str, tables: TableNames) -> str:
    """What whoever migrates these tables locks, on the whole server: by where they are, however a URL spells it."""
    return f"postroom {crc32(f'{tables.schema or database} {tables.prefix}'.encode())}"
