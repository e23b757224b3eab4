"""What a setting's text means, by the kind of its field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as short
from typing import Any

from postroom.config.secrets import read_lines
from postroom.config.values import PRESET_FIELDS
from postroom.config.values import PRESETS as RELAY_PRESETS
from postroom.durations import parse_duration
from postroom.errors import ConfigError
from postroom.retry import PRESETS, Exponential, RetryPolicy, Table, parse_backoff
from postroom.urls import HostPort, parse_address

URLS = ("store", "to")
"""Never shown, since a URL may hold a password."""
_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


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


def _backoff(value: Any) -> Exponential | Table | RetryPolicy:
    """A preset stays whole: it brings its cap along."""
    if isinstance(value, Exponential | Table):
        return value
    if isinstance(value, str):
        return PRESETS.get(value.strip()) or parse_backoff(value)
    return Table(tuple(map(parse_duration, value)))


def _patterns(value: object) -> tuple[str, ...]:
    return (
        (value,) if isinstance(value, str) else tuple(map(_text, value if isinstance(value, list | tuple) else [None]))
    )


def _address(value: object) -> HostPort:
    if isinstance(value, HostPort):
        return value
    return parse_address(str(value) if type(value) is int else _text(value))


def _secrets(value: object) -> tuple[str, ...]:
    return read_lines(value if isinstance(value, Path) else Path(_text(value)))


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read, which types a TOML file may give it, and what to say when it is none."""

    read: Callable[[Any], Any]
    toml: tuple[type, ...]
    expects: str


_TEXT = Kind(_text, (str,), "text")
_WHOLE = Kind(_whole, (int,), "a whole number such as 32")
_FLAG = Kind(_flag, (bool,), "true or false")
_BACKOFF = Kind(_backoff, (str, list), "delays such as 5,10,20 or exp:2s..10m")
# By the annotation of the field.
_KINDS = {
    **dict.fromkeys(("str", "str | None", "NoRoute", "AfterDeath", "Preset | None"), _TEXT),
    **dict.fromkeys(("bool", "bool | None"), _FLAG),
    **dict.fromkeys(("int", "int | None"), _WHOLE),
    **dict.fromkeys(("Backoff", "Backoff | None"), _BACKOFF),
    "timedelta": Kind(parse_duration, (str, int, float), "a duration such as 500ms, 2s or 1h30m"),
    "Patterns": Kind(_patterns, (str, list), "a pattern such as order.*, or a list of them"),
    "HostPort | None": Kind(_address, (str, int), "an address such as 8080 or 0.0.0.0:8080"),
    "Secrets": Kind(_secrets, (str,), "the name of a file"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of one of the values in `postroom.config.values`."""

    section: str
    field: str
    kind: Kind

    @property
    def key(self) -> str:
        """What it is called in its section. Secrets are never written down themselves, only the file they are in."""
        return {"secrets": "secrets_file"}.get(self.field, self.field)

    @property
    def name(self) -> str:
        """What it is called in code."""
        prefix = {"limits": "limit_"}.get(self.section, "")
        return {"prefix": "table_prefix"}.get(self.field, prefix + self.key)

    @property
    def variable(self) -> str:
        """What it is called in the environment."""
        return f"POSTROOM_{self.name.upper()}"

    @property
    def path(self) -> str:
        """What it is called in the file."""
        return f"{self.section}.{self.key}".lstrip(".")

    def read(self, value: object, where: str) -> Any:
        """The value, converted; a `ConfigError` names the place. A URL is never shown."""
        try:
            return self.kind.read(value)
        except ConfigError as exc:
            raise ConfigError(f"{where}: {exc}", setting=self.name) from exc
        except (TypeError, KeyError) as exc:
            shown = f"a {type(value).__name__}" if self.field in URLS else short(value)
            raise ConfigError(f"{where}: {shown} is not {self.kind.expects}.", setting=self.name) from exc

    def read_toml(self, value: object, path: Path, where: str) -> Any:
        """The value as the file gives it. A file named in it is looked for beside it."""
        if type(value) not in self.kind.toml:
            kind = type(value).__name__
            raise ConfigError(f"{where} must be {self.kind.expects}, not a value of type {kind}.")
        if self.field == "secrets" and isinstance(value, str):
            value = path.parent / value
        return self.read(value, where)


def settings_of(section: str, config: type[Any], *, but: Iterable[str] = ()) -> list[Setting]:
    """Every field of this class, as a setting."""
    return [Setting(section, each.name, _KINDS[str(each.type)]) for each in fields(config) if each.name not in set(but)]


def relay_preset(name: str | None) -> dict[str, Any]:
    """The settings that a preset of the relay gives; ConfigError for one that there is not."""
    if name is None:
        return {}
    if name not in PRESET_FIELDS:
        raise ConfigError(f"preset is {name!r}; it must be {' or '.join(PRESET_FIELDS)}.", preset=name)
    return {field: getattr(RELAY_PRESETS[name], field) for field in PRESET_FIELDS[name]}


def apply_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with a preset for backoff taken apart: its cap counts unless one is given."""
    preset = values.get("backoff")
    if not isinstance(preset, RetryPolicy):
        return dict(values)
    return {"max_attempts": preset.max_attempts, **values, "backoff": preset.backoff}


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise ConfigError, with the nearest name that there is, for one that there is not."""
    known = sorted(known)
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
            raise ConfigError(f"{where}: {name} is unknown; {hint}", name=name)
