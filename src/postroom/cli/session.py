"""What a command has at hand: the settings, the store they name, and the secrets that must not be shown."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import click

from postroom.cli.notes import note
from postroom.config.load import CONFIG, load_here, unknown_variables
from postroom.config.values import Settings
from postroom.contracts.store import Store
from postroom.errors import SchemaMismatch
from postroom.stores import must_exist, open_store
from postroom.urls import HIDDEN, redact, secrets_in


class Session:
    """One run of one command."""

    def __init__(self, given: Mapping[str, object] | None = None, *, config: Path | None = None) -> None:
        self.given, self.config = given or {}, config
        """Settings and a file by whoever runs the command line inside something else: options come before them alone."""
        self.settings = Settings()
        self.brokers: list[str] = []
        """URLs that are no settings, and may hold secrets all the same."""

    def load(self, config: Path | None, **overrides: object) -> None:
        """Gather the settings: options, else the environment, else the file given or `postroom.toml` in this folder."""
        options = {name: value for name, value in overrides.items() if value is not None}
        self.settings = load_here(config or self.config, {**self.given, **options})
        for name, close in unknown_variables(os.environ):
            note(f"{name} is set, but is none of our variables{f'; did you mean {close}?' if close else '.'}")

    @property
    def url(self) -> str:
        """The store's URL, password and all; a usage error when nobody named one."""
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
    async def store(self, *, reading: bool = False) -> AsyncIterator[Store]:
        """The store, open, with the tables that this Postroom needs; else SchemaMismatch with the command to type.

        Who is only *reading* may do so in newer tables: there it is often an older command that a person has at hand."""
        must_exist(self.url)
        async with open_store(self.url, tables=self.settings.tables) as store:
            if not store.capabilities.durable:
                note(f"{self.shown_url} is empty now, and gone when this command ends.")
            try:
                await store.schema.check()
            except SchemaMismatch as exc:
                if not reading or exc.facts.get("version", 0) <= exc.facts.get("needed", 0):
                    raise
                note(f"{exc} What is shown may not be all.")
            yield store

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
