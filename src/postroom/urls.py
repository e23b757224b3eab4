"""URLs that can be shown: without a password in them.

Passwords are often written raw, with @ : / % in them, into URLs that then do not parse; and just those URLs
end up in error messages. So nothing here parses: where a string can be read in two ways, both are hidden.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

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

_DRIVER = re.compile(r"(?i)(postgresql|postgres|mysql|mariadb|sqlite)\+(\w+)://")
_ADDRESS = re.compile(r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]*)):)?(?P<port>[0-9]{1,5})", re.ASCII)

_WORD = r"[A-Za-z][a-z]{0,14}"
_PLAIN = re.compile(rf"@?{_WORD}(?:[-_.]{_WORD})*|v[0-9]{{1,3}}|")
"""A part of a path that is no token: words as people write them, or a version."""
_WEBHOOK = {"http", "https"}
SECRET_MIN = 3
"""What is shorter is part of ordinary words."""

_NO_USER = {"sqlite", "local", "memory"}
"""After these comes a path or a name, never a user."""
_NAMED_USER = {"postgresql", "postgres", "mysql", "mariadb", "mongodb"}
"""Here what stands alone before the @ is a name; elsewhere it may be a token."""


def redact(url: str) -> str:
    """The URL, or libpq's `key=value` spelling of one, with every password and token replaced by `***`.

    Of a webhook only the parts of its path are shown that are plain words, and no values behind the `?`: the rest may be
    the secret by which its receiver knows us.

    >>> redact("postgresql://app:p@ss/w:rd%@db:5432/shop?sslmode=require&sslpassword=x")
    'postgresql://app:***@db:5432/shop?sslmode=require&sslpassword=***'
    >>> redact("https://hooks.example.com/services/T00/B00/XXXXXXXX?key=1")
    'https://hooks.example.com/services/***/***/***?key=***'
    >>> redact(r"host=db password='it\\'s' dbname=shop")
    'host=db password=*** dbname=shop'
    """
    if _DSN.match(url):
        return _redact_dsn(url)
    # Parameters first: an @ in one of them would be taken for the end of the user's part.
    url = _PARAMETER.sub(rf"\1{HIDDEN}", url)
    match = _SCHEME.match(url)
    scheme, start = (match[1].lower(), match.end()) if match else ("", 0)
    if scheme in _NO_USER:
        return url
    shown = _hide_user(url[start:], scheme)
    return url[:start] + (_hide_tokens(shown) if scheme in _WEBHOOK else shown)


def secrets_in(url: str) -> list[str]:
    """Return what `redact` hides of this URL, in each spelling, the longest first; to be looked for in texts of others."""
    shown = redact(url)
    if shown == url:
        return []
    match = re.fullmatch("(.+?)".join(map(re.escape, shown.split(HIDDEN))), url, re.DOTALL)
    found = match.groups() if match else (url,)
    spellings = {spelling for secret in found for spelling in (secret, unquote(secret))}
    return sorted((each for each in spellings if len(each) >= SECRET_MIN), key=len, reverse=True)


def split_scheme(url: str) -> tuple[str, str]:
    """The scheme, in lower case, and what follows its `://`; raises `ConfigError` when there is none.

    >>> split_scheme("SQLite:///shop.db")
    ('sqlite', '/shop.db')
    """
    match = _SCHEME.match(url)
    if not match or not match[2]:
        raise ConfigError(f"{redact(url)!r} is not a URL; it must start with a scheme, as sqlite:///shop.db does.")
    return match[1].lower(), url[match.end() :]


def without_driver(url: str) -> str:
    """A store's URL without what SQLAlchemy needs in it: the driver, and the driver's own spelling of an option.

    >>> without_driver("postgresql+asyncpg://app@db/shop?ssl=require")
    'postgresql://app@db/shop?sslmode=require'
    >>> without_driver("mysql+pymysql://app@db/shop?charset=utf8mb4"), without_driver("mongodb+srv://db/shop")
    ('mysql://app@db/shop', 'mongodb+srv://db/shop')
    """
    found = _DRIVER.match(url)
    if not found:
        return url
    head, mark, query = url[found.end() :].partition("?")
    options = [option for option in query.split("&") if option and not option.lower().startswith("charset=")]
    if found[2].lower() == "asyncpg":
        options = [f"sslmode={option[4:]}" if option.startswith("ssl=") else option for option in options]
    rest = f"{mark}{'&'.join(options)}" if options else ""
    return f"{found[1]}://{head}{rest}"


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
            f"{text[:60]!r} is not an address to listen at; write 8080, or 0.0.0.0:8080 for all who can reach it."
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


def _hide_tokens(rest: str) -> str:
    """The same, with what may be a token in the path, and every value behind it, hidden."""
    rest, sharp, fragment = rest.partition("#")
    where, mark, query = rest.partition("?")
    host, *path = where.split("/")
    parts = [part if _PLAIN.fullmatch(part) else HIDDEN for part in path]
    values = [_hide_parameter(part) for part in query.split("&")]
    return "/".join([host, *parts]) + mark + "&".join(values) + sharp + (HIDDEN if fragment else "")


def _hide_parameter(part: str) -> str:
    name, equals, value = part.partition("=")
    if not equals:
        return HIDDEN if part else ""
    return f"{name}={HIDDEN if value else ''}"


def _redact_dsn(dsn: str) -> str:
    if not _DSN_WELL_FORMED.fullmatch(dsn):
        return re.sub("(?s)://.*", f"://{HIDDEN}", _DSN_REST.sub(rf"\1{HIDDEN}", dsn))
    return _DSN_PAIR.sub(lambda pair: pair[1] + pair[2] + _hide_value(pair[1], pair[3]), dsn)


def _hide_value(name: str, value: str) -> str:
    if re.search(_WORDS, name, re.IGNORECASE):
        return HIDDEN
    # libpq takes a whole URL as its dbname.
    return redact(value) if "://" in value else value
