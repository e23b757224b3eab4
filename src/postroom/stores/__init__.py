"""The databases Postroom knows, by the scheme of their URL. Drivers are imported when one is opened, never before."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, MissingDependency, SchemaMismatch
from postroom.stores.connections import shown_name

if TYPE_CHECKING:
    from postroom.contracts.store import Store, Waker


@dataclass(frozen=True, slots=True)
class Known:
    """A database: its module has `open_store(url, tables=…, lanes=…, name=…)`."""

    module: str
    example: str
    title: str = ""
    driver: str = ""
    """The package that it needs, which the extra named like its module brings; empty: none."""


_MYSQL = Known("mysql", "mysql://user:password@host/database", "MariaDB and MySQL need", "asyncmy")
_POSTGRES = Known("postgres", "postgresql://user@host/database", "PostgreSQL needs", "psycopg")
_MONGO = Known("mongo", "mongodb://host/database?replicaSet=rs0", "MongoDB needs", "PyMongo")

STORES = {
    "memory": Known("memory", "memory://"),
    "sqlite": Known("sqlite", "sqlite:///shop.db"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "mongodb": _MONGO,
    "mongodb+srv": _MONGO,
}
"""What can be opened. A new store is a line here, and a module of that name in this package."""


def open_store(
    url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str | None = None
) -> Store:
    """Return the store that this URL names. It connects at its first use; use it as `async with open_store(url) as store:`.

    `lanes` matters to `schema.migrate` alone: 64 unless the tables are new and it says otherwise. `name` is a relay's: the
    server lists its connections under `postroom:NAME`. A driver in the URL, as SQLAlchemy has it, is left out.

    Raises ConfigError for a URL that names no store, and MissingDependency when the driver is not installed.
    """
    # Handles live in this package too, and a service that only puts messages opens no store: keep its import light.
    from postroom.urls import redact, split_scheme, without_driver

    url = without_driver(url)
    scheme, _ = split_scheme(url)
    if scheme not in STORES:
        examples = ", ".join(dict.fromkeys(known.example for known in STORES.values()))
        raise ConfigError(
            f"Postroom knows no store {scheme}:// (in {redact(url)}); give one like {examples}.", scheme=scheme
        )
    known = STORES[scheme]
    try:
        module = import_module(f"{__name__}.{known.module}")
    except ImportError as exc:
        raise MissingDependency(
            f"{known.title} the driver {known.driver}, which is not installed: run `pip install 'postroom[{known.module}]'`.",
            extra=known.module,
        ) from exc
    store: Store = module.open_store(url, tables=tables, lanes=lanes, name=shown_name(name))
    return store


def open_waker(url: str, *, tables: TableNames | None = None) -> Waker:
    """Return what a service calls after its commits, so that an idle relay looks at once instead of at its next poll.

    ```python
    waker = open_waker("postgresql://app@db/shop")
    with session.begin():
        outbox.put(session, Message("order.paid", key=order.id))
    waker.wake()
    ```

    It is for PostgreSQL, which does not tell of a commit by itself. On SQLite it does nothing, and need not; on MariaDB and
    MySQL there is no way to tell anybody, and relays poll.
    """
    from postroom.contracts.store import Waker
    from postroom.urls import split_scheme, without_driver

    url = without_driver(url)
    if not split_scheme(url)[0].startswith("postgres"):
        return Waker()
    from postroom.stores.postgres.watch import PostgresWaker

    return PostgresWaker(url, tables or TableNames())


def must_exist(url: str) -> None:
    """Raise SchemaMismatch where a SQLite URL names no file. Connecting would make one: a mistyped name must not leave it
    behind."""
    from postroom.urls import redact, split_scheme, without_driver

    url = without_driver(url)
    if split_scheme(url)[0] != "sqlite":
        return
    from postroom.stores.sqlite.url import path_of

    if not (path := path_of(url)).exists():
        init = f"postroom init --store {redact(url)}"
        raise SchemaMismatch(f"There is no file {path}: check the name, or run `{init}`.")
