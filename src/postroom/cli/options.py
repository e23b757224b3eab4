"""Options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from postroom.cli.session import Session
from postroom.clock import utcnow
from postroom.config.load import CONFIG
from postroom.durations import parse_duration
from postroom.errors import ConfigError

Command = Callable[..., None]

SETTINGS = (
    "store", "table_prefix", "schema",
    "to", "lease", "preset", "batch", "batch_max", "concurrency", "poll", "send_timeout", "max_attempts", "backoff",
    "health", "secrets_file",
)  # fmt: skip
"""Options that are settings: they go into the Session, before the environment and the file."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?P<zone>[Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def store_options(command: Command) -> Command:
    """Add --store and its kin; the command is called with a Session that has read them."""

    @click.option(
        "--store", metavar="URL", help="The database, such as sqlite:///shop.db. Default: POSTROOM_STORE, or the file."
    )
    @click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"The file with the settings. Default: {CONFIG} in this folder, if it is there.",
    )
    @click.option("--table-prefix", metavar="NAME", help="What the tables' names start with. Default: outbox.")
    @click.option("--schema", metavar="NAME", help="The database schema that the tables are in. Default: none.")
    @click.pass_context
    @functools.wraps(command)
    def loaded(context: click.Context, /, config: Path | None, **options: Any) -> None:
        session: Session = context.obj
        settings = {name: options.pop(name) for name in SETTINGS if name in options}
        session.load(config, **settings, lanes=options.get("lanes"))
        command(session, **options)

    return loaded


def whole_type(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """For an option that is a type of messages: a pattern is refused, rather than matched by nothing."""
    if value is not None and "*" in value:
        raise click.BadParameter(
            f"{value!r} is a pattern; give one whole type, such as order.paid.", context, parameter
        )
    return value


def after_now(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """For an option that is a point in time: RFC 3339, or a duration from now."""
    return _moment(context, parameter, value, ago=False)


def before_now(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """For an option that is a point in time: RFC 3339, or a duration ago."""
    return _moment(context, parameter, value, ago=True)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None, *, ago: bool) -> datetime | None:
    try:
        return None if value is None else parse_moment(value, now=utcnow(), ago=ago)
    except ConfigError as exc:
        raise click.BadParameter(str(exc), context, parameter) from None


def parse_moment(text: str, *, now: datetime, ago: bool = False) -> datetime:
    """The point in time that a person means; ConfigError, with the remedy, for anything else.

    >>> parse_moment("2026-11-15T10:00:00+01:00", now=datetime.min).isoformat()
    '2026-11-15T10:00:00+01:00'
    """
    text = text.strip()
    match = _RFC3339.fullmatch(text)
    if match and not match["zone"]:
        raise ConfigError(f"{text} has no time zone; add one, as in {text}Z for UTC.")
    try:
        if match:
            return datetime.fromisoformat(text.upper())
        duration = _with_unit(text)
        return now - duration if ago else now + duration
    except (ConfigError, ValueError, OverflowError):
        example = "1h or 7d for so long ago" if ago else "10m or 7d for so long from now"
        raise ConfigError(f"{text[:60]!r} is not a valid time; write 2026-11-15T10:00:00Z, or {example}.") from None


def _with_unit(text: str) -> timedelta:
    # A bare number may be meant as a year or as seconds since 1970: better to ask.
    if text[-1:].isdecimal():
        raise ConfigError(f"{text} has no unit.")
    return parse_duration(text)
