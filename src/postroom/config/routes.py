"""The routes of a TOML file: each `[[routes]]` a `RouteConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from postroom.config.parse import apply_preset, refuse_unknown, settings_of
from postroom.config.secrets import read_private
from postroom.config.values import RouteConfig
from postroom.errors import ConfigError

SETTINGS = {setting.key: setting for setting in settings_of("routes", RouteConfig)}
"""What a route can have, by the name that it has in the file."""
TO_FILE = "to_file"
"""Instead of `to`: the file that the URL is in, for one with a password."""


def read_routes(document: object, path: Path) -> tuple[RouteConfig, ...]:
    """The routes as the file has them, in order."""
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise ConfigError(f"{path}: routes must be tables, each written [[routes]].")
    return tuple(_read(table, number, path) for number, table in enumerate(document, start=1))


def _read(table: Mapping[str, Any], number: int, path: Path) -> RouteConfig:
    name = table.get("name", f"route-{number}")
    where = f"{path}: route {name!r}"
    refuse_unknown(table, [*SETTINGS, TO_FILE], where)
    values = {
        SETTINGS[key].field: SETTINGS[key].read_toml(value, path, f"{where}: {key}")
        for key, value in table.items()
        if key != TO_FILE
    }
    try:
        return RouteConfig(**apply_preset({"name": name, "to": _to(table, path), **values}))
    except ConfigError as exc:
        raise ConfigError(f"{where}: {exc}", **exc.facts) from exc


def _to(table: Mapping[str, Any], path: Path) -> str:
    match table.get("to"), table.get(TO_FILE):
        case None, None:
            raise ConfigError('it leads nowhere; write to = "https://…", or to_file = "…".')
        case str(to), None:
            return to
        case None, str(file):
            return read_private(path.parent / file)
        case None, wrong:
            raise ConfigError(f"{TO_FILE} must be the name of a file, not a value of type {type(wrong).__name__}.")
        case _:
            raise ConfigError(f"to and {TO_FILE} are both given; keep one of them.")
