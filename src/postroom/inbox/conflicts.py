"""Is an error the violation of one unique constraint? Decided by the database's code and the constraint's exact name. Pure.

Texts of errors quote the user's data, and names contain other names. So a text is looked into only after the code has said
"a unique constraint", and only at the place where that database writes the name. What cannot be told for certain is not it:
an error that is taken for "done before" loses a message, and an error that stays one is tried again and seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

POSTGRES_UNIQUE = "23505"
MYSQL_DUPLICATE = 1062
SQLITE_UNIQUE, SQLITE_PRIMARY_KEY = 2067, 1555
MONGO_DUPLICATE = 11000
MYSQL_DRIVERS = ("pymysql", "MySQLdb", "asyncmy", "aiomysql")
EVERYWHERE = ("PRIMARY", "_id_")
"""Names that a constraint has in every table: MySQL's for the primary key, MongoDB's for the index of `_id`."""


def is_conflict(error: BaseException, constraint: str) -> bool:
    """Is it a violation of this constraint, as any driver says it, or SQLAlchemy or Django around the driver?"""
    return any(name == _plain(constraint) for each in _layers(error) for name in [_violated(each)])


def _layers(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was made of. SQLAlchemy keeps the driver's error in `orig`, Django in the cause."""
    seen: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in seen:
        seen.add(id(below))
        yield below
        inner = getattr(below, "orig", None)
        below = inner if isinstance(inner, BaseException) else below.__cause__


def _violated(error: BaseException) -> str | None:
    """The name of the unique constraint that this error of a driver is about; None for any other error."""
    readers: tuple[Callable[[Any], str | None], ...] = (_on_postgres, _on_sqlite, _on_mysql, _on_mongo)
    return next((name for read in readers if (name := read(error))), None)


def _on_postgres(error: Any) -> str | None:
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg and asyncpg; psycopg2
    if code != POSTGRES_UNIQUE:
        return None
    name = getattr(getattr(error, "diag", error), "constraint_name", None)  # asyncpg's stands on the error itself
    return name if isinstance(name, str) else None


def _on_sqlite(error: Any) -> str | None:
    if getattr(error, "sqlite_errorcode", None) not in (SQLITE_UNIQUE, SQLITE_PRIMARY_KEY):
        return None
    # The columns, or for an index on an expression its name.
    found = re.fullmatch(r"UNIQUE constraint failed: (?:index '(.+)'|(.+))", _text(error))
    return _plain(found[1] or found[2]) if found else None


def _on_mysql(error: Any) -> str | None:
    if type(error).__module__.partition(".")[0] not in MYSQL_DRIVERS or error.args[:1] != (MYSQL_DUPLICATE,):
        return None
    # At the very end: the value that stands before it is the user's, and may look like this too.
    found = re.search(r" for key '([^']+)'$", str(error.args[1]) if len(error.args) > 1 else "")
    return found[1] if found and found[1] not in EVERYWHERE else None


def _on_mongo(error: Any) -> str | None:
    details = getattr(error, "details", None)
    if not isinstance(details, Mapping):
        return None
    if isinstance(several := details.get("writeErrors"), list):
        names = {_index(each) for each in several}
        return names.pop() if len(names) == 1 else None
    return _index(details)


def _index(details: Mapping[str, Any]) -> str | None:
    """The collection and the index that one refused document was in conflict with: `charges.order_id_1`."""
    if details.get("code") != MONGO_DUPLICATE:
        return None
    # At the very start: the value that stands behind it is the user's.
    said = str(details.get("errmsg", ""))
    found = re.match(r"E11000 duplicate key error collection: [^.\s]+\.(\S+) index: (\S+) dup key: ", said)
    return f"{found[1]}.{found[2]}" if found else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a stranger's error may not be readable; then it is not known what it is
        return ""


def _plain(name: str) -> str:
    """Several columns with one space between them."""
    return ", ".join(part.strip() for part in name.split(","))
