"""What a command has at hand: the settings, the store they name, and the secrets that must not be shown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from postroom.cli.stderr import note
from postroom.config.load import CONFIG, load_here, unknown_variables
from postroom.config.values import Settings
from postroom.contracts.store import Store
from postroom.errors import SchemaMismatch
from postroom.stores import must_exist, open_store
from postroom.urls import HIDDEN, redact, secrets_in

Found = TypeVar("Found")


class Run(Protocol):
    """Runs work in the one event loop of a command."""

    def __call__(self, coro: Coroutine[Any, Any, Found], /) -> Found: ...


class Session:
    """One run of one command."""

    def __init__(self, given: Mapping[str, object] | None = None, *, config: Path | None = None) -> None:
        self.given, self.config = given or {}, config
        """Settings and a file from the program that runs the command line inside itself. Only options come before them."""
        self.settings = Settings()
        self.brokers: list[str] = []
        """URLs that are not settings, and may hold secrets all the same."""

    def load(self, config: Path | None, **overrides: object) -> None:
        """Gather the settings: options, else the environment, else the file given or `postroom.toml` in this folder."""
        options = {name: value for name, value in overrides.items() if value is not None}
        self.settings = load_here(config or self.config, {**self.given, **options})
        for name, close in unknown_variables(os.environ):
            note(f"{name} is set, but Postroom has no such variable{f'; did you mean {close}?' if close else '.'}")

    @property
    def url(self) -> str:
        """The store's URL with its password. Raises a usage error when none is named."""
        if not self.settings.store:
            raise click.UsageError(
                'No store is named: give --store URL, set POSTROOM_STORE, or write store = "sqlite:///shop.db" '
                f"in {CONFIG}."
            )
        return self.settings.store

    @property
    def shown_url(self) -> str:
        """The store's URL as it may be shown."""
        return redact(self.url)

    @asynccontextmanager
    async def store(self, *, reading: bool = False, with_inbox: bool = False) -> AsyncIterator[Store]:
        """The store, open, with the tables that this Postroom needs; else SchemaMismatch with the command to type.

        A command that only reads (*reading*) may do so in newer tables: a person often has an older command at hand there."""
        must_exist(self.url)
        async with open_store(self.url, tables=self.settings.tables) as store:
            if with_inbox:
                _ = store.inbox  # ConfigError where there is none: before anything else is said of the store
            if not store.capabilities.durable:
                note(f"{self.shown_url} is empty now, and gone when this command ends.")
            try:
                await store.schema.check()
            except SchemaMismatch as exc:
                if not reading or exc.facts.get("version", 0) <= exc.facts.get("needed", 0):
                    raise
                note(f"{exc} The output may be incomplete.")
            yield store

    @contextmanager
    def opened(self) -> Iterator[tuple[Run, Store]]:
        """The store, open, and what runs work on it: for a command that asks a person in between.

        While nothing runs, Ctrl-C is an interrupt like any other."""
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            try:
                yield runner.run, runner.run(stack.enter_async_context(self.store()))
            finally:
                runner.run(stack.aclose())

    def worded(self, sentence: str) -> str:
        """An error's sentence, in the words of where the command line is run."""
        return sentence

    def scrub(self, text: str) -> str:
        """The text without the secrets in any URL of ours, wherever a driver may have quoted them."""
        settings = self.settings
        urls = (settings.store, settings.to, *(route.to for route in settings.routes), *self.brokers)
        for secret in (secret for url in urls if url for secret in secrets_in(url)):
            text = text.replace(secret, HIDDEN)
        return text
