"""The command line inside a Django project: `manage.py postroom …`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from postroom.cli.run import run
from postroom.cli.session import Session
from postroom.contracts.store import Store
from postroom.integrations.django.conf import conf, store_url
from postroom.integrations.django.inbox import DjangoStore

PROGRAM = "manage.py postroom"
INIT = re.compile(r"`postroom init [^`]*`")
COMMAND = re.compile(r"`postroom (?=[a-z-])")


def run_for(alias: str, arguments: Sequence[str]) -> int:
    """Run a command on the database of this name in `DATABASES`; its exit code. ConfigError where that cannot be a store."""
    return run(arguments, DjangoSession(alias), program=PROGRAM)


class DjangoSession(Session):
    """One run of one command, on a database of the project's settings."""

    def __init__(self, alias: str) -> None:
        settings = conf()
        given = {"store": store_url(alias), "to": settings.to, "table_prefix": settings.table_prefix}
        super().__init__(given, config=Path(settings.config) if settings.config else None)
        self._alias = alias

    @asynccontextmanager
    async def store(self, *, reading: bool = False, with_inbox: bool = False) -> AsyncIterator[Store]:
        """The store, with Django's own transactions for sync handlers."""
        async with super().store(reading=reading, with_inbox=with_inbox) as inner:
            # Another --store is not the database that Django's transactions are on.
            if self.settings.store != self.given["store"]:
                yield inner
                return
            async with DjangoStore(inner, self._alias, self.settings.tables) as store:
                yield store

    def worded(self, sentence: str) -> str:
        """What is to be typed, as it is typed here."""
        database = "" if self._alias == "default" else f" --database {self._alias}"
        migrated = INIT.sub(f"`manage.py migrate postroom{database}`", sentence)
        return COMMAND.sub(f"`{PROGRAM} ", migrated)
