"""What the project says of Postroom: `POSTROOM = {...}` in its settings. All of it may be left out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

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
