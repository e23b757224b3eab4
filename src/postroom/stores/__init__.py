"""The databases Postroom knows, by the scheme of their URL. Drivers are imported when one is opened, never before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from postroom.config.tables import TableNames
from postroom.errors import ConfigError, MissingDependency, SchemaMismatch
from postroom.stores.connection_names import OURS, shown_name

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.contracts.inbox import InboxStore
    from postroom.contracts.outbox import Store, Waker

SCHEMES = {
    "memory": "memory://",
    "sqlite": "sqlite:///shop.db",
    "postgresql": "postgresql://user@host/database",
    "postgres": "postgresql://user@host/database",
    "mysql": "mysql://user:password@host/database",
    "mariadb": "mysql://user:password@host/database",
    "mongodb": "mongodb://host/database?replicaSet=rs0",
    "mongodb+srv": "mongodb://host/database?replicaSet=rs0",
}
"""What can be opened, with an example of each."""


def open_store(
    url: str, *, tables: TableNames | None = None, lanes: int | None = None, name: str | None = None
) -> Store:
    """The store this URL names. It connects at its first use; use it as `async with open_store(url) as store:`.

    `lanes` matters to `migrate` alone: 64 unless the tables are new and it says otherwise. `name` is a relay's: the server
    lists its connections under `postroom:NAME`. A driver in the URL, as SQLAlchemy has it, is left out.
    """
    # Handles live in this package too, and a service that only puts messages opens no store: keep its import light.
    from postroom.urls import redact, split_scheme, without_driver

    url = without_driver(url)
    scheme, _ = split_scheme(url)
    if scheme not in _OPENERS:
        examples = ", ".join(dict.fromkeys(SCHEMES.values()))
        raise ConfigError(
            f"Postroom knows no store {scheme}:// (in {redact(url)}); give one like {examples}.", scheme=scheme
        )
    return _OPENERS[scheme](url, tables, lanes, shown_name(name))


def open_inbox_store(url: str, *, tables: TableNames | None = None) -> InboxStore:
    """The inbox's side of the store this URL names: what `InboxWorker` writes to."""
    from postroom.urls import redact, split_scheme, without_driver

    url = without_driver(url)
    match split_scheme(url)[0]:
        case "sqlite":
            from postroom.stores.sqlite.inbox import SQLiteInbox

            return SQLiteInbox(sqlite_path(url), tables=tables)
        case "postgresql" | "postgres":
            _postgres(url, tables, None)
            from postroom.stores.postgres.inbox import PostgresInbox

            return PostgresInbox(url, tables=tables)
        case "mysql" | "mariadb":
            _mysql(url, tables, None)
            from postroom.stores.mysql.inbox import MySQLInbox

            return MySQLInbox(url, tables=tables)
        case "mongodb" | "mongodb+srv":
            _mongo(url, tables, None)
            from postroom.stores.mongo.inbox import MongoInbox

            return MongoInbox(url, tables=tables)
    raise ConfigError(
        f"There is no inbox on {redact(url)}: use sqlite://, postgresql://, mysql:// or mongodb://.", url=redact(url)
    )


def open_waker(url: str, *, tables: TableNames | None = None) -> Waker:
    """What a service calls after its commits, so that an idle relay looks at once instead of at its next poll.

    ```python
    waker = open_waker("postgresql://app@db/shop")
    with session.begin():
        outbox.put(session, Message("order.paid", key=order.id))
    waker.wake()
    ```

    It is for PostgreSQL, where nobody hears of a commit by itself. On SQLite it does nothing, and need not; on MariaDB and
    MySQL there is no way to tell anybody, and relays poll.
    """
    from postroom.contracts.outbox import Waker
    from postroom.urls import split_scheme, without_driver

    url = without_driver(url)
    if not split_scheme(url)[0].startswith("postgres"):
        return Waker()
    from postroom.stores.postgres.watch import PostgresWaker

    return PostgresWaker(url, tables or TableNames())


def _memory(url: str, tables: TableNames | None, lanes: int | None, name: str = OURS) -> Store:  # noqa: ARG001 - it has no server to tell
    from postroom.stores.memory import LANES_DEFAULT, MemoryStore

    return MemoryStore(lanes=lanes or LANES_DEFAULT)


def _sqlite(url: str, tables: TableNames | None, lanes: int | None, name: str = OURS) -> Store:  # noqa: ARG001 - it has no server to tell
    from postroom.stores.sqlite import SQLiteStore

    return SQLiteStore(sqlite_path(url), tables=tables, lanes=lanes)


def _postgres(url: str, tables: TableNames | None, lanes: int | None, name: str = OURS) -> Store:
    try:
        from postroom.stores.postgres import PostgresStore
    except ImportError as exc:
        raise MissingDependency(
            "PostgreSQL needs the driver psycopg, which is not installed: run `pip install 'postroom[postgres]'`.",
            extra="postgres",
        ) from exc
    return PostgresStore(url, tables=tables, lanes=lanes, name=name)


def _mysql(url: str, tables: TableNames | None, lanes: int | None, name: str = OURS) -> Store:
    try:
        from postroom.stores.mysql import MySQLStore
    except ImportError as exc:
        raise MissingDependency(
            "MariaDB and MySQL need the driver asyncmy, which is not installed: run `pip install 'postroom[mysql]'`.",
            extra="mysql",
        ) from exc
    return MySQLStore(url, tables=tables, lanes=lanes, name=name)


def _mongo(url: str, tables: TableNames | None, lanes: int | None, name: str = OURS) -> Store:
    try:
        from postroom.stores.mongo import MongoStore
    except ImportError as exc:
        raise MissingDependency(
            "MongoDB needs the driver PyMongo, which is not installed: run `pip install 'postroom[mongo]'`.",
            extra="mongo",
        ) from exc
    return MongoStore(url, tables=tables, lanes=lanes, name=name)


def must_exist(url: str) -> None:
    """Raise SchemaMismatch where a SQLite URL names no file. Connecting would make one: a mistyped name must not leave it
    behind."""
    from postroom.urls import redact, split_scheme, without_driver

    url = without_driver(url)
    if split_scheme(url)[0] == "sqlite" and not sqlite_path(url).exists():
        init = f"postroom init --store {redact(url)}"
        raise SchemaMismatch(f"There is no file {sqlite_path(url)}: check the name, or run `{init}`.")


async def drop_tables(url: str, tables: TableNames) -> None:
    """Drop the tables of these names in the store that this URL names; with all that is in them, and for good."""
    from postroom.urls import split_scheme, without_driver

    url = without_driver(url)
    match split_scheme(url)[0]:
        case "sqlite":
            from postroom.stores.sqlite.drop import drop as drop_in_sqlite

            await drop_in_sqlite(sqlite_path(url), tables)
        case "postgresql" | "postgres":
            from postroom.stores.postgres.drop import drop as drop_in_postgres

            await drop_in_postgres(url, tables)
        case "mysql" | "mariadb":
            from postroom.stores.mysql.drop import drop as drop_in_mysql

            await drop_in_mysql(url, tables)
        case "mongodb" | "mongodb+srv":
            from postroom.stores.mongo.drop import drop as drop_in_mongo

            await drop_in_mongo(url, tables)


def sqlite_path(url: str) -> Path:
    """The file a SQLite URL names: three slashes for a relative path, four for an absolute one, as SQLAlchemy has it.

    >>> sqlite_path("sqlite:///shop.db"), sqlite_path("sqlite:////var/shop.db")
    (PosixPath('shop.db'), PosixPath('/var/shop.db'))
    """
    from pathlib import Path

    from postroom.urls import redact, split_scheme, without_driver

    _, rest = split_scheme(without_driver(url))
    if not rest.startswith("/") or rest == "/":
        raise ConfigError(
            f"{redact(url)} names no file: write sqlite:///shop.db for one in this folder, or sqlite:////var/shop.db.",
            url=redact(url),
        )
    return Path(rest[1:])


_OPENERS: dict[str, Callable[[str, TableNames | None, int | None, str], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "mongodb": _mongo,
    "mongodb+srv": _mongo,
}
