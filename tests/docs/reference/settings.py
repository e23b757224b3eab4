"""settings.md: every setting, by its names in the file, the environment and code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING, fields

from tests.docs.reference.made import explained, first, page, paragraphs, table

import postroom.config.load
from postroom.config.load import ROUTE_SETTINGS, SETTINGS
from postroom.config.parse import URLS, Setting
from postroom.config.values import Limits, RelayConfig, RouteConfig, Settings, TableNames

SECTIONS: dict[str, type] = {"": Settings, "relay": RelayConfig, "tables": TableNames, "limits": Limits}
DEFAULT = re.compile(r" ?Default:? (?P<default>(?:[^.]|\.(?=\S))+)\.")


def page_of_settings() -> str:
    """A table for each section of the file."""
    parts = []
    for section, config in SECTIONS.items():
        mine = [each for each in SETTINGS.values() if each.section == section]
        rows = [[f"`{each.path}`", _variable(each), *_meaning(each, config)] for each in mine]
        parts += [f"## `[{section}]`" if section else "## At the top", first(config)]
        parts += [table([["in the file", "in the environment", "default", "meaning"], *rows])]
    return page(
        "Settings", *paragraphs(postroom.config.load), *parts, "## `[[routes]]`", *_of_routes(ROUTE_SETTINGS.values())
    )


def _of_routes(settings: Iterable[Setting]) -> list[str]:
    rows = [[f"`{each.key}`", *_meaning(each, RouteConfig)] for each in settings]
    return [first(RouteConfig), table([["in the file", "default", "meaning"], *rows])]


def _variable(setting: Setting) -> str:
    """A URL may also stand in a file that a variable names: it may hold a password."""
    more = f", `{setting.variable}_FILE`" if setting.name in URLS else ""
    return f"`{setting.variable}`{more}"


def _meaning(setting: Setting, config: type) -> list[str]:
    """The default and the rest of what the field says of itself."""
    text = explained(config)[setting.field]
    said = DEFAULT.search(text)
    if said:
        return [said["default"], DEFAULT.sub("", text, count=1).strip()]
    (default,) = (each.default for each in fields(config) if each.name == setting.field)
    return ["must be given" if default is MISSING else f"`{default}`", text]
