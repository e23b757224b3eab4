"""One connection: begun, rolled back, kept alive."""

from __future__ import annotations

import socket
from typing import Any, TypeAlias, TypeVar

import asyncmy
from asyncmy import errors

Connection: TypeAlias = asyncmy.Connection
Link = TypeVar("Link", bound=asyncmy.Connection)

KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A server that vanished without a word (its machine, or the network) is noticed within half a minute, not in hours."""


async def begun(connection: Link, begin: bool) -> Link:
    """The connection, in a transaction if it is to be; closed when that fails."""
    try:
        if begin:
            await connection.begin()
    except BaseException:
        connection.close()
        raise
    return connection


async def roll_back(connection: Connection) -> None:
    """Also after an error that rolled back a statement alone: half a transaction must never be committed.

    Of a connection that is gone the server does so itself, and what broke it is what the caller should hear of."""
    try:
        await connection.rollback()
    except errors.MySQLError:
        connection.close()
    except BaseException:
        connection.close()
        raise


def link(connection: Any) -> Any:
    """What carries the connection, None once it was closed; the driver shows it in no other way."""
    return connection._transport if connection.connected else None  # noqa: SLF001 - see above


def keep_alive(connection: Any) -> None:
    """Have the system notice when the other end is gone."""
    end = link(connection).get_extra_info("socket")
    if end.family != socket.AF_UNIX:
        for name, value in KEEPALIVE.items():
            if option := getattr(socket, name, None):  # not every system has them all
                end.setsockopt(socket.IPPROTO_TCP, option, value)
