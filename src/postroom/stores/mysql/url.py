"""Where the server is, out of a URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from postroom.errors import ConfigError
from postroom.urls import redact

PORT = 3306
EXAMPLE = "mysql://user:password@host:3306/database"
OPTIONS = ("ssl", "ssl_ca", "unix_socket")


@dataclass(frozen=True, slots=True)
class MySQLUrl:
    """What the driver is told, and what may be shown."""

    shown: str
    parameters: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, url: str) -> MySQLUrl:
        """Read `mysql://user:password@host:3306/database`; `?ssl=true`, `?ssl_ca=FILE` and `?unix_socket=PATH` are known.

        >>> MySQLUrl.of("mariadb://app:p%40ss@db/shop").parameters["password"]
        'p@ss'
        """
        shown = redact(url)
        try:
            parts = urlsplit(url)
            port = parts.port or PORT
        except ValueError:
            # What the library says of it may quote the password.
            raise _wrong(shown) from None
        database = unquote(parts.path[1:])
        if not database or "/" in database or parts.fragment:
            raise _wrong(shown)
        parameters: dict[str, Any] = {
            "host": parts.hostname or "localhost",
            "port": port,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": database,
        }
        return cls(shown, parameters | _options(dict(parse_qsl(parts.query)), shown))


def _options(given: dict[str, str], shown: str) -> dict[str, Any]:
    if unknown := given.keys() - set(OPTIONS):
        raise ConfigError(
            f"{shown} has the option {min(unknown)}, which Postroom does not know; there are {', '.join(OPTIONS)}."
        )
    found: dict[str, Any] = {}
    if "unix_socket" in given:
        found["unix_socket"] = given["unix_socket"]
    if given.get("ssl", "").lower() in ("1", "true", "yes") or "ssl_ca" in given:
        try:
            found["ssl"] = ssl.create_default_context(cafile=given.get("ssl_ca"))
        except OSError as exc:
            raise ConfigError(f"{given['ssl_ca']}, the ssl_ca in {shown}, cannot be read: {exc.strerror}.") from exc
    return found


def _wrong(shown: str) -> ConfigError:
    return ConfigError(
        f"{shown} is not a MySQL URL: write {EXAMPLE}, with %40 for an @ and %25 for a % in the password.", url=shown
    )
