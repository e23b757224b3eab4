"""What a MongoDB URL says: where, which database, and what is Postroom's own in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from postroom.config.tables import TableNames
from postroom.errors import ConfigError
from postroom.urls import redact

PATIENCE: dict[str, int] = {
    "serverSelectionTimeoutMS": 10_000,
    "connectTimeoutMS": 10_000,
    "socketTimeoutMS": 30_000,
}
"""A server that vanished without a word is noticed within half a minute; the URL may say otherwise."""


OURS = "postroom_"
"""How the options begin that are not the driver's."""
CHOICES = {"postroom_transactions": ("on", "off"), "postroom_dead": ("outbox", "collection")}


@dataclass(frozen=True, slots=True)
class MongoUrl:
    """A URL, taken apart."""

    url: str = field(repr=False)
    """For the driver: with the password."""
    shown: str
    database: str
    patience: dict[str, Any]
    dead_apart: bool
    """Do dead messages go to a collection of their own?"""
    transactions: bool
    """Are there any? Without them every write is one by itself, in an order that is safe wherever it ends."""


def address(url: str, tables: TableNames) -> MongoUrl:
    """Take the URL apart, or raise ConfigError with how to write it.

    >>> address("mongodb://db/shop?replicaSet=rs0", TableNames()).database
    'shop'
    >>> address("mongodb://db/shop?postroom_transactions=off&w=1", TableNames()).url
    'mongodb://db/shop?w=1'
    """
    head, _, query = url.partition("?")
    _, slash, path = head.partition("://")[2].rpartition("@")[2].partition("/")
    database = tables.schema or unquote(path)
    if not database or (not slash and not tables.schema):
        raise ConfigError(
            f"{redact(url)} names no database: write mongodb://host:27017/shop?replicaSet=rs0.", url=redact(url)
        )
    options = [option for option in query.split("&") if option]
    given = {option.partition("=")[0].lower() for option in options}
    # The driver would warn of options that it does not know.
    rest = "&".join(option for option in options if not option.lower().startswith(OURS))
    ours = _ours([option for option in options if option.lower().startswith(OURS)], redact(url))
    return MongoUrl(
        url=f"{head}?{rest}" if rest else head,
        shown=redact(url),
        database=database,
        patience={name: value for name, value in PATIENCE.items() if name.lower() not in given},
        dead_apart=ours.get("postroom_dead") == "collection",
        transactions=ours.get("postroom_transactions") != "off",
    )


def _ours(options: Sequence[str], shown: str) -> dict[str, str]:
    """The options that are not the driver's, by name."""
    ours: dict[str, str] = {}
    for option in options:
        name, _, said = option.lower().partition("=")
        if said not in CHOICES.get(name, ()):
            known = ", ".join(f"{name}={' or '.join(choices)}" for name, choices in CHOICES.items())
            raise ConfigError(f"{shown} has {option}, which Postroom does not know; there are {known}.", url=shown)
        ours[name] = said
    return ours
