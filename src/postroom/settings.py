"""Where settings come from: what is given in code, else the environment, else a TOML file, else the defaults.

Every field of the values in `postroom.config` is a setting at once: `relay.batch` in the file is `batch` in
code and `POSTROOM_BATCH` in the environment. Where that would say too little it is prefixed: `table_prefix`,
`limit_body`.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from postroom.config import Limits, RelayConfig, Settings, TableNames
from postroom.durations import parse_duration
from postroom.errors import ConfigError
from postroom.retry import Exponential, Table, parse_backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SECRETS = ("store", "to")
"""What may also come from a file, named by `POSTROOM_STORE_FILE` and `POSTROOM_TO_FILE`."""
_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
_SECTIONS: dict[str, type[Any]] = {"": Settings, "relay": RelayConfig, "tables": TableNames, "limits": Limits}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
        return int(value)
    if type(value) is not int:
        raise TypeError
    return value


def _flag(value: object) -> bool:
    return value if isinstance(value, bool) else _WORDS[_text(value).strip().lower()]


def _backoff(value: Any) -> Exponential | Table:
    if isinstance(value, Exponential | Table):
        return value
    return parse_backoff(value) if isinstance(value, str) else Table(tuple(map(parse_duration, value)))


@dataclass(frozen=True, slots=True)
class _Kind:
    read: Callable[[Any], Any]
    toml: tuple[type, ...]
    expects: str


# By the annotation of the field.
_KINDS = {
    "str": _Kind(_text, (str,), "text"),
    "str | None": _Kind(_text, (str,), "text"),
    "bool": _Kind(_flag, (bool,), "true or false"),
    "int": _Kind(_whole, (int,), "a whole number such as 32"),
    "timedelta": _Kind(parse_duration, (str, int, float), "a duration such as 500ms, 2s or 1h30m"),
    "Backoff": _Kind(_backoff, (str, list), "delays such as 5,10,20 or exp:2s..10m"),
}


@dataclass(frozen=True, slots=True)
class _Setting:
    section: str
    field: str
    kind: _Kind

    @property
    def name(self) -> str:
        """What it is called in code and, in capitals, in the environment."""
        prefix = {"limits": "limit_"}.get(self.section, "")
        return {"prefix": "table_prefix"}.get(self.field, prefix + self.field)

    @property
    def path(self) -> str:
        """What it is called in the file."""
        return f"{self.section}.{self.field}".lstrip(".")

    def read(self, value: object, where: str) -> Any:
        """The value, converted; a `ConfigError` names the place. A URL is never shown."""
        try:
            return self.kind.read(value)
        except ConfigError as exc:
            raise ConfigError(f"{where}: {exc}", setting=self.name) from exc
        except (TypeError, KeyError) as exc:
            shown = f"a {type(value).__name__}" if self.field in SECRETS else short(value)
            raise ConfigError(f"{where}: {shown} is not {self.kind.expects}.", setting=self.name) from exc


_SETTINGS = {
    setting.name: setting
    for section, config in _SECTIONS.items()
    for each in fields(config)
    if each.name not in _SECTIONS
    for setting in [_Setting(section, each.name, _KINDS[str(each.type)])]
}


def load(*, env: Mapping[str, str], toml: Path | None = None, **overrides: object) -> Settings:
    """Gathers the settings: overrides win over `env`, that over the file, that over the defaults.

    An override that is `None`, and a variable that is empty, count as not given.
    """
    values = (_from_toml(toml) if toml else {}) | _from_env(env) | _from_overrides(overrides)
    parts: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for name, value in values.items():
        setting = _SETTINGS[name]
        parts[setting.section][setting.field] = value
    top = parts.pop("")
    return Settings(**top, **{section: _SECTIONS[section](**part) for section, part in parts.items()})


def _from_overrides(overrides: Mapping[str, object]) -> dict[str, Any]:
    given = {name: value for name, value in overrides.items() if value is not None}
    _refuse_unknown(given, _SETTINGS, "settings")
    return {name: _SETTINGS[name].read(value, name) for name, value in given.items()}


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, setting in _SETTINGS.items():
        variable = f"POSTROOM_{name.upper()}"
        value = env.get(variable)
        if name in SECRETS and (path := env.get(f"{variable}_FILE")):
            if value:
                raise ConfigError(f"{variable} and {variable}_FILE are both set; keep one of them.")
            value = _secret(Path(path), f"{variable}_FILE")
        if value:
            found[name] = setting.read(value, variable)
    return found


def _from_toml(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", path=str(path)) from exc
    except ValueError as exc:
        raise ConfigError(f"{path} is not TOML: {exc}.", path=str(path)) from exc
    given = dict(_flatten(document, path))
    known = {setting.path: setting for setting in _SETTINGS.values()}
    _refuse_unknown(given, known, str(path))
    found = {}
    for key, value in given.items():
        setting = known[key]
        if type(value) not in setting.kind.toml:
            kind = type(value).__name__
            raise ConfigError(f"{path}: {key} must be {setting.kind.expects}, not a value of type {kind}.")
        found[setting.name] = setting.read(value, f"{path}: {key}")
    return found


def _flatten(document: Mapping[str, Any], path: Path) -> Iterable[tuple[str, object]]:
    for key, value in document.items():
        if key not in _SECTIONS:
            yield key, value
        elif isinstance(value, dict):
            yield from ((f"{key}.{name}", each) for name, each in value.items())
        else:
            raise ConfigError(f"{path}: {key} must be a table, written [{key}].")


def _refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    known = sorted(known)
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
            raise ConfigError(f"{where}: {name} is unknown; {hint}", name=name)


def _secret(path: Path, variable: str) -> str:
    try:
        # Not blocking, because a named pipe would keep us here until somebody writes to it.
        with open(path, encoding="utf-8", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"{variable}: {path} is not a regular file.")
            if mode & stat.S_IROTH:
                raise ConfigError(f"{variable}: {path} can be read by everybody; run: chmod o-r {path}.")
            secret = file.read().strip()
    except OSError as exc:
        raise ConfigError(f"{variable}: {path} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {path} is not text in UTF-8.") from None
    if not secret:
        raise ConfigError(f"{variable}: {path} is empty.")
    return secret


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
