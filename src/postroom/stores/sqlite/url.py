"""The file that a SQLite URL names."""

from __future__ import annotations

from pathlib import Path

from postroom.errors import ConfigError
from postroom.urls import redact, split_scheme, without_driver


def path_of(url: str) -> Path:
    """Return the file: three slashes for a relative path, four for an absolute one, as in SQLAlchemy.

    >>> path_of("sqlite:///shop.db"), path_of("sqlite:////var/shop.db")
    (PosixPath('shop.db'), PosixPath('/var/shop.db'))

    Raises ConfigError when the URL names none."""
    _, rest = split_scheme(without_driver(url))
    if not rest.startswith("/") or rest == "/":
        raise ConfigError(
            f"{redact(url)} names no file: write sqlite:///shop.db for one in this folder, or sqlite:////var/shop.db.",
            url=redact(url),
        )
    return Path(rest[1:])
