"""Which server it is, and whether it is new enough."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from postroom.errors import StoreError

NEEDED = {"mariadb": (10, 6, 0), "mysql": (8, 0, 17)}
"""SKIP LOCKED and JSON_TABLE; on MySQL also defaults that are computed, and a collation that does not pad."""
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
