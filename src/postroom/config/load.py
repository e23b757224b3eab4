"""Where settings come from: what is given in code, else the environment, else a TOML file, else the defaults.

Every field of the values in `postroom.config.values` is a setting at once: `relay.batch` in the file is `batch` in
code and `POSTROOM_BATCH` in the environment. Where that would say too little it is prefixed: `table_prefix`,
`limit_body`. Routes are tables of the file alone: `[[routes]]`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from postroom.config.parse import URLS, apply_preset, refuse_unknown, relay_preset, settings_of
from postroom.config.secrets import read_private
from postroom.config.values import Limits, RelayConfig, RouteConfig, Settings, TableNames
from postroom.errors import ConfigError

_SECTIONS: dict[str, type[Any]] = {"": Settings, "relay": RelayConfig, "tables": TableNames, "limits": Limits}
ROUTES = "routes"
CONFIG = Path("postroom.toml")
"""The file that is read without being named, where it stands in the current folder."""
PREFIX = "POSTROOM_"
OTHER_VARIABLES = ("POSTROOM_DEBUG", "POSTROOM_FAILPOINT", "POSTROOM_SECRETS")
"""Variables that are not settings."""
OF_TESTS = tuple(
    f"{PREFIX}{name}"
    for name in (
        "TEST_",
        "REQUIRE_SERVERS",
        "SERVERS_RUN",
        "PROOF_",
        "DEMO_",
        "EXAMPLES",
        "PUBLIC_ONLY",
    )
)
"""How the variables of Postroom's own tests, examples and demo begin."""
SETTINGS = {
    setting.name: setting
    for section, config in _SECTIONS.items()
    for setting in settings_of(section, config, but=[*_SECTIONS, ROUTES])
}
"""Every setting but those of routes, by the name that it has in code."""
ROUTE_SETTINGS = {setting.key: setting for setting in settings_of(ROUTES, RouteConfig)}
"""What a route can have, by the name that it has in the file."""
TO_FILE = "to_file"
"""Instead of `to`: the file that the URL is in, for one with a password."""


def load_settings(*, env: Mapping[str, str], toml: Path | None = None, **overrides: object) -> Settings:
    """Gathers the settings: overrides win over `env`, that over the file, that over the defaults.

    An override that is `None`, and a variable that is empty, count as not given.
    """
    return _gathered(env, toml, overrides, {})


def load_here(
    config: Path | None, overrides: Mapping[str, object], *, defaults: Mapping[str, object] | None = None
) -> Settings:
    """The same for this process: with its environment, and the file given or else `postroom.toml` in the current folder.
    `defaults` stand in for ours."""
    file = config or (CONFIG if CONFIG.is_file() else None)
    return _gathered(os.environ, file, overrides, defaults or {})


def _gathered(
    env: Mapping[str, str], toml: Path | None, overrides: Mapping[str, object], defaults: Mapping[str, object]
) -> Settings:
    document = _document(toml) if toml else {}
    routes = _routes(document.pop(ROUTES, []), toml) if toml else ()
    written = _from_toml(document, toml) if toml else {}
    given = _from_overrides(defaults) | written | _from_env(env) | _from_overrides(overrides)
    parts: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for name, value in (relay_preset(given.get("preset")) | apply_preset(given)).items():
        setting = SETTINGS[name]
        parts[setting.section][setting.field] = value
    top = parts.pop("")
    sections = {section: _SECTIONS[section](**part) for section, part in parts.items()}
    return Settings(**top, routes=routes, **sections)


def _from_overrides(overrides: Mapping[str, object]) -> dict[str, Any]:
    given = {name: value for name, value in overrides.items() if value is not None}
    refuse_unknown(given, SETTINGS, "settings")
    return {name: SETTINGS[name].read(value, name) for name, value in given.items()}


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, setting in SETTINGS.items():
        variable = setting.variable
        value = env.get(variable)
        if name in URLS and (path := env.get(f"{variable}_FILE")):
            if value:
                raise ConfigError(f"{variable} and {variable}_FILE are both set; keep one of them.")
            value = _private(Path(path), f"{variable}_FILE")
        if value:
            found[name] = setting.read(value, variable)
    return found


def unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield each variable that looks like one of ours and is none, with the nearest one there is."""
    files = (f"{SETTINGS[name].variable}_FILE" for name in URLS)
    known = {*(setting.variable for setting in SETTINGS.values()), *files, *OTHER_VARIABLES}
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in known and not name.startswith(OF_TESTS):
            yield name, next(iter(get_close_matches(name, known, n=1)), None)


def _private(path: Path, variable: str) -> str:
    try:
        return read_private(path)
    except ConfigError as exc:
        raise ConfigError(f"{variable}: {exc}") from exc


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", path=str(path)) from exc
    except ValueError as exc:
        raise ConfigError(f"{path} is not TOML: {exc}.", path=str(path)) from exc


def _from_toml(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    given = dict(_flatten(document, path))
    known = {setting.path: setting for setting in SETTINGS.values()}
    refuse_unknown(given, [*known, ROUTES], str(path))
    return {known[key].name: known[key].read_toml(value, path, f"{path}: {key}") for key, value in given.items()}


def _flatten(document: Mapping[str, Any], path: Path) -> Iterable[tuple[str, object]]:
    for key, value in document.items():
        if key not in _SECTIONS:
            yield key, value
        elif isinstance(value, dict):
            yield from ((f"{key}.{name}", each) for name, each in value.items())
        else:
            raise ConfigError(f"{path}: {key} must be a table, written [{key}].")


# ── the routes: each `[[routes]]` a `RouteConfig` ──


def _routes(document: object, path: Path) -> tuple[RouteConfig, ...]:
    """The routes as the file has them, in order."""
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise ConfigError(f"{path}: routes must be tables, each written [[routes]].")
    return tuple(_route(table, number, path) for number, table in enumerate(document, start=1))


def _route(table: Mapping[str, Any], number: int, path: Path) -> RouteConfig:
    name = table.get("name", f"route-{number}")
    where = f"{path}: route {name!r}"
    refuse_unknown(table, [*ROUTE_SETTINGS, TO_FILE], where)
    values = {
        ROUTE_SETTINGS[key].field: ROUTE_SETTINGS[key].read_toml(value, path, f"{where}: {key}")
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
