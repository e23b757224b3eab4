"""A connection to NATS that is never renewed by itself.

The library would keep what is published meanwhile and send it when the server is back, long after we said that it failed. So
a connection that broke is done with, and whoever needs one makes the next.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.errors import Error

from postroom.clock import monotonic
from postroom.transports.nats.url import NatsUrl
from postroom.transports.refusals import not_opened, why_not

LOG = logging.getLogger("postroom.nats")
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
PING_SECONDS = 5
FLUSH_SECONDS = 0.2
"""So long is waited, when the server takes no more for now, before the next message is looked at."""
QUIET_SECONDS = 1.0
"""So long after its last word the server is taken to be there."""

_NO_TLS = "the server offers no TLS, and tls:// wants it"
_MAY_NOT_PUBLISH = re.compile(r"permissions violation for publish to \"?([^\"']+)", re.IGNORECASE)


class _Client(Client):
    """The library would go on in the clear, password first, where a server does not ask for TLS."""

    must_encrypt = False

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.must_encrypt and initial_connection and not info.get("tls_required"):
            raise Error(f"nats: {_NO_TLS}")
        await super()._process_info(info, initial_connection)


class Connection:
    """One connection, from `connect` to its end."""

    def __init__(self) -> None:
        self.client = _Client()
        self.noted: Exception | None = None
        """What went wrong last."""
        self.closed = asyncio.Event()
        self.when_closed: Callable[[], None] | None = None
        self.when_forbidden: Callable[[str, str], None] | None = None
        """Told a subject that we may not publish to, and what the server says of it."""
        self.heard_at = monotonic()

    @property
    def is_open(self) -> bool:
        return bool(self.client.is_connected) and not self.closed.is_set()

    async def is_there(self, seconds: float) -> bool:
        """Does the server answer? Not asked when it just did. When it does not, drop the connection."""
        if not self.is_open:
            return False
        if monotonic() - self.heard_at < QUIET_SECONDS:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self.client.flush(timeout=max(1, int(seconds + 1)))
        except (TimeoutError, OSError, Error):
            return False
        self.heard_at = monotonic()
        return self.is_open

    async def close(self) -> None:
        """Say goodbye; what was written is sent first, if the server takes it."""
        with suppress(TimeoutError, OSError, Error):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.flush()
        await self.drop()

    async def flush(self) -> None:
        """Wait until the server has read all that was written."""
        # The library's ping overtakes what waits to be written; that is out by the time the answer comes.
        await self.client.flush(timeout=int(CONNECT_SECONDS))
        await self.client.flush(timeout=int(CONNECT_SECONDS))

    async def drop(self) -> None:
        """End it without a word: nothing that still waits here is sent."""
        client = self.client
        self.closed.set()
        # The library sends what waits before it closes, and waits for a server that takes nothing.
        client._pending, client._pending_data_size = [], 0  # noqa: SLF001
        if (writer := getattr(client._transport, "_io_writer", None)) is not None:  # noqa: SLF001
            writer.transport.abort()
        with suppress(TimeoutError, OSError, Error):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()

    async def note(self, error: Exception) -> None:
        self.noted = error
        if (match := _MAY_NOT_PUBLISH.search(str(error))) and self.when_forbidden is not None:
            self.when_forbidden(match[1], str(error))

    async def end(self) -> None:
        self.closed.set()
        if self.when_closed is not None:
            self.when_closed()


async def connect(settings: NatsUrl, seconds: float = CONNECT_SECONDS) -> Connection:
    """A new connection; TransportUnavailable when there is none to be had in that time, TransportRefused when the server, or
    the system, says that the URL is wrong."""
    made = Connection()
    made.client.must_encrypt = settings.must_encrypt
    try:
        async with asyncio.timeout(seconds):
            await made.client.connect(
                servers=list(settings.servers),
                name="postroom",
                allow_reconnect=False,
                max_reconnect_attempts=1,  # 0 would be "forever", also for the first connection
                reconnect_time_wait=0,
                connect_timeout=max(1, int(seconds)),
                ping_interval=PING_SECONDS,
                flush_timeout=FLUSH_SECONDS,
                error_cb=made.note,
                closed_cb=made.end,
                user=settings.user,
                password=settings.password,
                token=settings.token,
                tls=settings.tls(),
                skip_subject_validation=True,  # each is checked once, by us
            )
    except (TimeoutError, OSError, Error) as exc:
        await made.drop()
        raise not_opened(
            _code(made, exc), f"No NATS answers at {settings.shown}: {_why(made, exc)}; start it, or correct the URL."
        ) from None
    except BaseException:
        # Whoever waited was told to stop: the socket must not stay behind.
        await made.drop()
        raise
    return made


def _code(made: Connection, error: Exception) -> str:
    """Whether a person must fix something, as far as the server or the system said so."""
    said = f"{made.noted} {error}".lower()
    if _NO_TLS.lower() in said or "no ssl context" in said:
        return "TLS_FAILED"
    for each in (made.noted, error):
        if each is not None and (why := why_not(each)) is not None:
            return why
    # One that does not take a password may hang up so fast that only that is seen.
    is_turned_away = "authorization" in said or "authentication" in said or _asks_who_we_are(made)
    return "AUTHENTICATION_FAILED" if is_turned_away and not isinstance(error, TimeoutError) else "CONNECT_FAILED"


def _asks_who_we_are(made: Connection) -> bool:
    return bool(made.client._server_info.get("auth_required"))  # noqa: SLF001 - told to nobody else


def _why(made: Connection, error: Exception) -> str:
    said = str(made.noted or error).removeprefix("nats: ").strip("'") or "no answer in time"
    # A server that does not take a password says so and hangs up at once; often only the hanging up is seen.
    return f"it asks for a user and password, and then: {said}" if _asks_who_we_are(made) else said
