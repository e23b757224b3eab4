"""events.md: what can happen, with the fields of each event."""

from __future__ import annotations

import typing
from dataclasses import MISSING, Field, fields

from tests.docs.reference.made import explained, first, page, paragraphs, table

from postroom import events

FAMILIES = {
    "LaneEvent": "Lanes",
    "BatchEvent": "Batches",
    "MessageEvent": "One message",
    "RouteEvent": "Routes",
}


def page_of_events() -> str:
    """The events by what they are of."""
    parts = []
    for name, title in FAMILIES.items():
        parts += [f"## {title}"]
        for event in typing.get_args(getattr(events, name)):
            parts += [f"### {event.__name__}", first(event), _fields(event)]
    return page("Events", *paragraphs(events), *parts)


def _fields(event: type) -> str:
    words = explained(event)
    rows = [[f"`{each.name}`", f"`{each.type}`", _default(each), words.get(each.name, "")] for each in fields(event)]
    return table([["field", "type", "default", "meaning"], *rows])


def _default(field: Field[object]) -> str:
    return "" if field.default is MISSING else f"`{field.default!r}`"
