"""What a `redis://` URL says: server, database, stream, and how much a confirmation is worth."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from postroom.errors import ConfigError
from postroom.urls import PORT_MAX, redact, split_scheme

EXAMPLE = "redis://server:6379/orders"
PORT_DEFAULT = 6379
HOLD_DEFAULT = 30.0
TLS_SCHEMES = frozenset({"rediss", "valkeys"})

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
REFUSED = {
    "ssl_cert_reqs": "the server's certificate is always checked; name its authority with ssl_ca_certs=/path/ca.pem",
    "ssl_check_hostname": "the server's certificate is always checked; use the host name that is in it",
    "protocol": "Postroom reads the replies of RESP2",
    "db": "the database must be written before the stream: redis://server:6379/2/orders",
    "password": "user and password must be written before the server: redis://user:password@server:6379/orders",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    """A URL, read."""

    shown: str
    """For people: without a password."""
    host: str
    port: int = PORT_DEFAULT
    database: int = 0
    stream: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str] | None = None
    """Files, by redis-py's names; None: no TLS."""
    wait: int = 0
    """So many replicas must have it."""
    waitaof: int = 0
    """1: the server's own disk must have it."""
    maxlen: int | None = None
    """So many entries are kept, whether anybody read the others or not."""
    roughly: bool = False
    """A few more may be kept, which is cheaper."""
    create: bool = True
    """A stream that is not there is made."""
    hold: float = HOLD_DEFAULT
    """A receiver that says nothing for so many seconds is dead, and others take what it had."""
    name: str | None = None
    """The receiver's name in its group; None: a new one each time."""
    delete: bool = False
    """What was acknowledged is taken out of the stream, for all groups."""

    @property
    def connection(self) -> dict[str, Any]:
        """What redis-py's connection is told."""
        given: dict[str, Any] = {"host": self.host, "port": self.port, "db": self.database}
        if self.username is not None or self.password is not None:
            given |= {"username": self.username, "password": self.password}
        return given | dict(self.tls or {})


def read(url: str) -> RedisUrl:
    """The settings in a URL, or ConfigError."""
    scheme, rest = split_scheme(url)
    where, _, query = rest.partition("?")
    authority, _, path = where.partition("/")
    if "@" in path or "#" in url:
        raise ConfigError(f"{redact(url)} cannot be read: write / as %2F, @ as %40 and # as %23 in its password.")
    user, _, address = authority.rpartition("@")
    match = _HOST.fullmatch(address)
    if not match or int(match["port"] or PORT_DEFAULT) > PORT_MAX:
        raise ConfigError(f"{redact(url)} names no Redis server; give one like {EXAMPLE}.")
    name, colon, password = user.partition(":")
    database, stream = _path(path, url)
    return RedisUrl(
        shown=redact(f"{scheme}://{where}"),
        host=match["host"].strip("[]"),
        port=int(match["port"] or PORT_DEFAULT),
        database=database,
        stream=stream,
        username=unquote(name) or None,
        password=unquote(password) if colon else None,
        **_chosen(query, url, has_tls=scheme in TLS_SCHEMES),
    )


def _path(path: str, url: str) -> tuple[int, str | None]:
    """`2/orders`, `orders`, `2` or nothing. A stream whose name is a number needs the database before it."""
    parts = path.strip("/").split("/")
    database = parts.pop(0) if parts[0].isdecimal() else "0"
    if len(parts) > 1:
        raise ConfigError(f"{redact(url)} has too many parts; write a / in a stream's name as %2F, as in {EXAMPLE}.")
    return int(database), unquote(parts[0]) if parts and parts[0] else None


def _chosen(query: str, url: str, *, has_tls: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    files: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        # Not parse_qsl: it reads + as a space.
        name, equals, text = part.partition("=")
        name, text = unquote(name), unquote(text)
        if reason := REFUSED.get(name):
            raise ConfigError(f"The setting {name} cannot be used in a Redis URL: {reason}.", setting=name)
        if name not in _READERS and name not in _TLS:
            known = ", ".join([*_READERS, *_TLS])
            raise ConfigError(f"{redact(url)} has the setting {name!r}, which is not one of {known}.", setting=name)
        if not equals or not text:
            raise ConfigError(f"The setting {name} in {redact(url)} has no value; write {name}=….", setting=name)
        if name in chosen or name in files:
            raise ConfigError(f"The setting {name} is given twice in the Redis URL; keep one of them.", setting=name)
        if name in _TLS:
            files[name] = text
        else:
            chosen[name] = _READERS[name](name, text)
    if files and not has_tls:
        raise ConfigError(f"{redact(url)} has certificates but no TLS; start it with rediss://.")
    if length := chosen.get("maxlen"):
        chosen |= {"maxlen": int(length.lstrip("~")), "roughly": length.startswith("~")}
    return chosen | {"tls": files if has_tls else None}


def _number(smallest: int, largest: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not text.isdecimal() or not smallest <= int(text) <= largest:
            raise ConfigError(f"The setting {name}={text} is not a number from {smallest} to {largest}.", setting=name)
        return int(text)

    return read


def _length(name: str, text: str) -> str:
    if not re.fullmatch(r"~?[1-9][0-9]{0,17}", text):
        raise ConfigError(
            f"The setting {name}={text} is not a length; write {name}=1000, or {name}=~1000.", setting=name
        )
    return text


def _switch(name: str, text: str) -> bool:
    if text not in {"on", "off"}:
        raise ConfigError(f"The setting {name}={text} is neither on nor off.", setting=name)
    return text == "on"


def _seconds(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text) or float(text) < 1:
        raise ConfigError(f"The setting {name}={text} is not a number of seconds, 1 or more.", setting=name)
    return float(text)


def _word(name: str, text: str) -> str:  # noqa: ARG001 - as the others
    return text


_READERS: dict[str, Callable[[str, str], Any]] = {
    "wait": _number(0, 100),
    "waitaof": _number(0, 1),
    "maxlen": _length,
    "create": _switch,
    "hold": _seconds,
    "name": _word,
    "delete": _switch,
}
