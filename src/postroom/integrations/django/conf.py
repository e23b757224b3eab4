"""What the project's settings say: `POSTROOM = {...}`, which may be left out, and the store's URL, made of `DATABASES`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from postroom.config.load import load_here
from postroom.config.tables import TableNames
from postroom.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """`POSTROOM`, in lower case."""

    to: str | None = None
    """Where `manage.py postroom relay` carries messages, unless `--to` says otherwise."""
    config: str | Path | None = None
    """A `postroom.toml`, with routes and all else that can be set. Default: the one in the current folder, if any."""
    table_prefix: str = TableNames().prefix
    """What the tables' names start with."""
    wake: bool = True
    """Whether `put` tells an idle relay of the commit, on PostgreSQL; else the relay finds out at its next poll."""

    @property
    def inbox_retention(self) -> timedelta:
        """For how long inboxes remember, as the `postroom.toml` or the environment says; ConfigError where that is wrong."""
        return load_here(Path(self.config) if self.config else None, {}).inbox_retention

    @property
    def tables(self) -> TableNames:
        """What the tables are called."""
        return TableNames(prefix=self.table_prefix)


def conf() -> Conf:
    """The project's settings; ImproperlyConfigured, with the remedy, where they are wrong."""
    from django.conf import settings  # not before it is asked for: looking at it alone makes Django read them

    given = getattr(settings, "POSTROOM", {})
    known = {field.name.upper(): field.name for field in fields(Conf)}
    if unknown := given.keys() - known.keys():
        raise ImproperlyConfigured(
            f"POSTROOM has no setting {min(unknown)!r}; there are {', '.join(known)}. "
            "All others go to the postroom.toml that CONFIG names."
        )
    found = Conf(**{known[name]: value for name, value in given.items()})
    try:
        _ = found.tables
    except ConfigError as exc:
        raise ImproperlyConfigured(f"POSTROOM['TABLE_PREFIX']: {exc}") from exc
    return found


# ── the store's URL: a relay connects where Django does ──

DJANGOS_OWN = {
    "assume_role", "autocommit", "context", "cursor_factory", "isolation_level", "pool", "prepare_threshold", "row_factory",
    "server_side_binding",
}  # fmt: skip
"""Options that Django or its driver takes for itself. What is left is libpq's, and goes into the URL."""
SAFE_MODES = {"DISABLED", "PREFERRED"}
"""Modes of MySQL's `ssl_mode` that ask for no more than the default does."""


def store_url(alias: str = "default") -> str:
    """The URL of this database of the settings, password and all; ConfigError, with the remedy, where it cannot have one."""
    if alias not in connections.settings:
        known = ", ".join(connections.settings)
        raise ConfigError(f"DATABASES has no {alias!r}; there are {known}.", alias=alias)
    connection = connections[alias]
    given: dict[str, Any] = connection.settings_dict
    match connection.vendor:
        case "sqlite":
            return _sqlite(str(given["NAME"]), alias)
        case "postgresql":
            return _postgres(given)
        case "mysql":
            return _mysql(given, alias)
    raise unsupported(alias, connection.vendor)


def unsupported(alias: str, vendor: str) -> ConfigError:
    """There is no store for this database."""
    return ConfigError(
        f"The database {alias!r} is {vendor}; Postroom works on SQLite, PostgreSQL, MariaDB and MySQL: name another with "
        "--database, and keep Postroom's tables out of this one with a database router.",
        alias=alias,
        vendor=vendor,
    )


def _sqlite(name: str, alias: str) -> str:
    if name == ":memory:" or name.startswith("file:"):
        raise ConfigError(
            f"The database {alias!r} is SQLite in memory, or by a file: URI, which no other connection of ours can open: "
            "give NAME the path of a file.",
            alias=alias,
        )
    return f"sqlite:///{Path(name)}"


def _postgres(given: Mapping[str, Any]) -> str:
    options = dict(given.get("OPTIONS") or {})
    query = {name: str(value) for name, value in options.items() if name not in DJANGOS_OWN}
    if role := options.get("assume_role"):
        query["options"] = f"{query.get('options', '')} -c role={role}".strip()
    host, port = str(given["HOST"] or ""), str(given["PORT"] or "")
    if host.startswith("/") or "," in host or ":" in host:  # a socket's folder, several hosts, IPv6
        query |= {"host": host} | ({"port": port} if port else {})
        host = port = ""
    name = given["NAME"] or ("" if "service" in query else "postgres")
    return (
        f"postgresql://{_user(given['USER'], given['PASSWORD'])}{_at(host, port)}/{quote(name, safe='')}{_query(query)}"
    )


def _mysql(given: Mapping[str, Any], alias: str) -> str:
    options = dict(given.get("OPTIONS") or {})
    tls = dict(options.get("ssl") or {})
    for option in ("read_default_file", "read_default_group"):
        if option in options:
            raise ConfigError(
                f"The database {alias!r} takes its address from {option}, which Postroom does not read: write HOST, USER, "
                "PASSWORD and NAME into DATABASES.",
                alias=alias,
            )
    if unknown := tls.keys() - {"ca"}:
        raise ConfigError(
            f"The database {alias!r} has ssl with {min(unknown)}, which Postroom cannot use; it takes ca alone: give it "
            "--store mysql://… instead.",
            alias=alias,
        )
    user = options.get("user") or given["USER"]
    password = options.get("password") or options.get("passwd") or given["PASSWORD"]
    name = options.get("database") or options.get("db") or given["NAME"]
    host = str(options.get("host") or given["HOST"] or "")
    query = {}
    socket = host if host.startswith("/") else options.get("unix_socket")
    if socket:
        query["unix_socket"], host = str(socket), ""
    if "ca" in tls:
        query["ssl_ca"] = str(tls["ca"])
    elif tls or options.get("ssl_mode", "DISABLED") not in SAFE_MODES:
        query["ssl"] = "true"
    place = _at(f"[{host}]" if ":" in host else host, str(options.get("port") or given["PORT"] or ""))
    return f"mysql://{_user(user, password)}{place}/{quote(name, safe='')}{_query(query)}"


def _user(user: str | None, password: str | None) -> str:
    if not user:
        return ""
    secret = f":{quote(password, safe='')}" if password else ""
    return f"{quote(user, safe='')}{secret}@"


def _at(host: str, port: str) -> str:
    return f"{host}:{port}" if port else host


def _query(parameters: Mapping[str, str]) -> str:
    return f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
