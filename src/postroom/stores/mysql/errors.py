"""What MariaDB or MySQL said, by its number: https://mariadb.com/kb/en/mariadb-error-code-reference/."""

from __future__ import annotations

from postroom.config.tables import TableNames
from postroom.errors import StoreError, StoreUnavailable
from postroom.stores.sql.migrations import missing

BUSY = frozenset({1020, 1205, 1213})
"""Lost to another transaction. 1205 rolls back one statement alone, which is why all is rolled back here."""
WAITED = 1205
"""A lock was not to be had in innodb_lock_wait_timeout: whoever waited that long need not be told to wait again."""
LOST = frozenset({0, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 3169, 4031})
"""The connection is gone, or cannot be trusted."""
READ_ONLY = frozenset({1207, 1290, 1792, 1836, 3100, 3101})
"""It takes no writes now: a replica, a switch-over, a group without its majority."""
FULL = frozenset({1021, 1023, 1026, 1030, 1037, 1038, 1041, 1114, 1135})
"""The disk, the tablespace or the memory is used up, or fails."""
NOT_NOW = READ_ONLY | FULL
"""The server as a whole cannot write now. A new connection may find another one that can."""
AWAY = LOST | BUSY | NOT_NOW | {1040, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 1317, 1969, 2002, 2003, 3024}
"""The server is away, full, read-only for now, or does not let us in."""
FORBIDDEN = frozenset({1142, 1143, 1227, 1370, 1419})
NO_TABLE = frozenset({1054, 1146})


def code_of(exc: BaseException) -> int | None:
    """The number of the driver's error."""
    number = exc.args[0] if exc.args else None
    return number if isinstance(number, int) else None


def is_lost(exc: BaseException) -> bool:
    """Is it the connection that broke?"""
    return code_of(exc) in LOST


def is_not_now(exc: BaseException) -> bool:
    """Does the server as a whole say that it cannot write now?"""
    return code_of(exc) in NOT_NOW


def translated(exc: BaseException, where: str, tables: TableNames) -> StoreError:
    """What the driver said, as one sentence and a remedy."""
    code, said = code_of(exc), _said(exc)
    if code in NO_TABLE:
        return missing(where, tables)
    if code in FORBIDDEN:
        return StoreError(f"The database at {where} refuses: {said}; grant this user the rights it lacks.")
    if code in READ_ONLY:
        return StoreUnavailable(
            f"The database at {where} is read-only now: {said}; Postroom waits. If it stays so, name the primary."
        )
    if code in FULL:
        return StoreUnavailable(f"The database at {where} cannot write now: {said}; check its disk and memory.")
    if code in AWAY or isinstance(exc, OSError):
        return StoreUnavailable(
            f"The database at {where} cannot be used: {said}; check that it runs, the address, the user and the password."
        )
    return StoreError(f"The database at {where} refuses: {said}.")


def _said(exc: BaseException) -> str:
    lines = str(exc.args[-1] if exc.args else exc).strip().splitlines()
    return lines[0].rstrip(".?") if lines else type(exc).__name__
