"""URLs that can be shown: without a password in them.

Passwords are often written raw, with @ : / % in them, into URLs that then do not parse; and just those URLs
end up in error messages. So nothing here parses: where a string can be read in two ways, both are hidden.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from postroom.errors import ConfigError

HIDDEN = "***"
LOOPBACK = "127.0.0.1"
PORT_MAX = 65_535

_WORDS = r"pass|pwd|secret|token|credential|signature|api_?key|access_?key|authmechanismproperties"
_SENSITIVE = rf"[^=&;#?\s]*(?:{_WORDS})[^=&;#?\s]*"
_PARAMETER = re.compile(rf"(?is)([?&;#]{_SENSITIVE}=).*?(?=[&;][\w.-]+=|\Z)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
# Something that is no port where a port should be: a password whose @host was forgotten.
_NO_PORT = re.compile(r"(?s)\A([^:/?#\[]*):(?![0-9]*(?:[,/?#]|\Z)).*")

_PAIR = r"(\w+)(\s*=\s*)('(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])(?:\\.|[^\s\\])*)(?=\s|\Z)"
_DSN = re.compile(r"\s*\w+\s*=")
_DSN_PAIR = re.compile(f"(?s){_PAIR}")
_DSN_WELL_FORMED = re.compile(rf"(?s)(?:\s*{_PAIR})*\s*")
_DSN_REST = re.compile(rf"(?is)({_SENSITIVE}\s*=).*")

_ADDRESS = re.compile(r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]*)):)?(?P<port>[0-9]{1,5})", re.ASCII)

_NO_USER = {"sqlite", "local", "memory"}
"""After these comes a path or a name, never a user."""
_NAMED_USER = {"postgresql", "postgres", "mysql", "mariadb", "mongodb"}
"""Here what stands alone before the @ is a name; elsewhere it may be a token."""


def redact(url: str) -> str:
    """The URL, or libpq's `key=value` spelling of one, with every password and token replaced by `***`.

    >>> redact("postgresql://app:p@ss/w:rd%@db:5432/shop?sslmode=require&sslpassword=x")
    'postgresql://app:***@db:5432/shop?sslmode=require&sslpassword=***'
    >>> redact(r"host=db password='it\\'s' dbname=shop")
    'host=db password=*** dbname=shop'
    """
    if _DSN.match(url):
        return _redact_dsn(url)
    # Parameters first: an @ in one of them would be taken for the end of the user's part.
    url = _PARAMETER.sub(rf"\1{HIDDEN}", url)
    match = _SCHEME.match(url)
    scheme, start = (match[1].lower(), match.end()) if match else ("", 0)
    return url if scheme in _NO_USER else url[:start] + _hide_user(url[start:], scheme)


def split_scheme(url: str) -> tuple[str, str]:
    """The scheme, in lower case, and what follows its `://`; raises `ConfigError` when there is none.

    >>> split_scheme("SQLite:///shop.db")
    ('sqlite', '/shop.db')
    """
    match = _SCHEME.match(url)
    if not match or not match[2]:
        raise ConfigError(f"{redact(url)!r} is no URL; it must start with a scheme, as sqlite:///shop.db does.")
    return match[1].lower(), url[match.end() :]


class HostPort(NamedTuple):
    """Where to listen."""

    host: str
    port: int
    """0: any that is free."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> HostPort:
    """Reads `8080`, `:8080`, `0.0.0.0:8080` or `[::1]:8080`; without a host, only this machine can reach it.

    >>> str(parse_address("8080")), parse_address("[::1]:8080").host
    ('127.0.0.1:8080', '::1')
    """
    match = _ADDRESS.fullmatch(text.strip())
    if not match or int(match["port"]) > PORT_MAX:
        raise ConfigError(
            f"{text[:60]!r} is no address to listen at; write 8080, or 0.0.0.0:8080 for all who can reach it."
        )
    return HostPort(match["v6"] or match["host"] or LOOPBACK, int(match["port"]))


def _hide_user(rest: str, scheme: str) -> str:
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    if not at:
        return _NO_PORT.sub(rf"\1:{HIDDEN}", rest)
    if colon:
        return f"{name}:{HIDDEN}@{host}"
    is_shown = scheme.partition("+")[0] in _NAMED_USER or re.search("[/?#]", user)
    return rest if is_shown else f"{HIDDEN}@{host}"


def _redact_dsn(dsn: str) -> str:
    if not _DSN_WELL_FORMED.fullmatch(dsn):
        return re.sub("(?s)://.*", f"://{HIDDEN}", _DSN_REST.sub(rf"\1{HIDDEN}", dsn))
    return _DSN_PAIR.sub(lambda pair: pair[1] + pair[2] + _hide_value(pair[1], pair[3]), dsn)


def _hide_value(name: str, value: str) -> str:
    if re.search(_WORDS, name, re.IGNORECASE):
        return HIDDEN
    # libpq takes a whole URL as its dbname.
    return redact(value) if "://" in value else value
