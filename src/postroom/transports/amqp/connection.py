"""Connections and channels of aiormq: made in time, cut off when they must be, and quiet; and the connection to send by."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import Any

import aiormq
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import commands as spec

from postroom.clock import monotonic

CLOSE_SECONDS = 2.0
BLOCKED_SECONDS = 0.01
"""So long is waited for a word that we have already, or do not."""
FRESH_SECONDS = 1.0
"""So long after a confirm the broker is taken to be there: a busy connection is not held up by looking."""
NOWHERE = "postroom.is-anybody-there"
"""A routing key that no queue has: what is sent there is confirmed, and dropped."""

LOST = (aiormq.AMQPError, aiormq.exceptions.ChannelInvalidStateError, OSError, EOFError)
"""What aiormq raises of a connection or a channel that is not there any more."""
TROUBLE = (*LOST, RuntimeError)
"""What it raises when one is to be opened; a time that is up is among it."""


_REFUSALS = {403: aiormq.exceptions.ProbableAuthenticationError, 530: aiormq.exceptions.ConnectionNotAllowed}


class Blocked(TimeoutError):
    """The broker is there, and takes no messages for now."""


_ours: ContextVar[bool] = ContextVar("postroom_amqp", default=False)
_behind: set[asyncio.Task[Any]] = set()
"""Tasks that tidy up behind us."""


class _Quiet(logging.Filter):
    """What aiormq says of our connections is information, whatever it thinks of it: it is in the outcomes.

    A broker that is away would fill a log with tracebacks. Connections of others in this process are left alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _ours.get() and record.levelno > logging.INFO:
            record.levelno, record.levelname = logging.INFO, "INFO"
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


_QUIET = _Quiet()
for _name in ("aiormq.connection", "aiormq.channel"):
    logging.getLogger(_name).addFilter(_QUIET)


class AmqpConnection:
    """One connection."""

    def __init__(self, connection: aiormq.Connection, socket: _Socket) -> None:
        self.connection, self._socket = connection, socket
        self._is_cut = False

    @property
    def is_open(self) -> bool:
        return self.connection.is_opened and not self._is_cut

    @property
    def version(self) -> tuple[int, int]:
        """Of the broker: (3, 10)."""
        words = str(self.connection.server_properties.get("version", "")).split(".")
        numbers = [int(word) for word in words[:2] if word.isdecimal()]
        return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)

    @property
    def frame_max(self) -> int:
        return self.connection.connection_tune.frame_max or 131_072

    async def channel(self, until: float, *, confirms: bool = True) -> aiormq.Channel:
        """A new channel. Raises TROUBLE."""
        opening = self.connection.channel(publisher_confirms=confirms, on_return_raises=True)
        with _quiet():
            channel: aiormq.Channel = await in_time(opening, until, self.cut)
        return channel

    async def unblocked(self, until: float) -> None:
        """Wait while the broker has no room for more. Raises Blocked when that takes too long, TROUBLE."""
        try:
            await in_time(self.connection.ready(), until, self.cut)
        except TimeoutError:
            raise Blocked from None

    async def is_blocked(self) -> bool:
        """Does the broker take no messages now, for want of memory or disk?"""
        try:
            async with asyncio.timeout(BLOCKED_SECONDS):
                await self.connection.ready()
        except TimeoutError:
            return self.is_open
        return False

    def cut(self) -> None:
        """End it now, without a word: nothing that is still in it leaves."""
        self._is_cut = True
        self._socket.abort()
        self._close_behind()

    async def close(self) -> None:
        """Say goodbye, if somebody listens."""
        closing = self._close_behind()
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
        if not closing.done():
            self._socket.abort()

    def _close_behind(self) -> asyncio.Task[None]:
        with _quiet():
            return behind_us(self.connection.close())


class ProducerConnection:
    """A connection to send by, and its one channel, with confirms. It serves one batch at a time. See `open_producer`."""

    def __init__(self, server: str, connection: AmqpConnection, channel: aiormq.Channel) -> None:
        self._server, self.connection, self.channel = server, connection, channel
        self.largest: int | None = None
        """The largest body that the broker takes, once it refused one."""
        self._confirmed_at = float("-inf")
        self._may_ask = True
        self._name = os.urandom(8).hex()
        self._numbers = count(1)

    @property
    def frame_max(self) -> int:
        return self.connection.frame_max

    def next_id(self) -> str:
        """An AMQP message id that no other attempt has: aiormq tells by it which message came back."""
        return f"{self._name}-{next(self._numbers)}"

    def confirmed(self) -> None:
        """Something was confirmed just now."""
        self._confirmed_at = monotonic()

    async def look(self, until: float) -> None:
        """Does the broker take and confirm messages now? Raises TROUBLE when not.

        A broker short of memory or disk answers all but those who publish. So a message is published, to nowhere."""
        if not self.channel.is_closed and monotonic() - self._confirmed_at <= FRESH_SECONDS:
            return
        if self.channel.is_closed:
            await self.reopen(until)
        try:
            await in_time(self._ask(), until, self.connection.cut)
        except aiormq.exceptions.ChannelAccessRefused:
            # It may write to its own exchange only. That it said so shows that it is there.
            self._may_ask = False
            await self.reopen(until)
        # A broker without room confirms the first message all the same; that it takes no second one it says before.
        await self.connection.unblocked(until)
        self.confirmed()

    async def reopen(self, until: float) -> None:
        """A new channel instead of one that the broker closed while nothing else was under way."""
        self.channel = await self.connection.channel(until)

    async def renew(self, until: float) -> None:
        """A new connection instead of one whose channel was closed under messages: what of these leaves aiormq after the
        broker forgot the channel costs the connection as well."""
        self.connection.cut()
        self.connection = await connect(self._server, until)
        await self.reopen(until)

    async def _ask(self) -> None:
        if self._may_ask:
            await self.channel.basic_publish(b"", routing_key=NOWHERE)
        else:
            await self.channel.basic_qos(prefetch_count=1)

    def cut(self) -> None:
        """End it, and all that is in it, now."""
        self.connection.cut()

    async def close(self) -> None:
        await self.connection.close()


class _Socket(TransportFactory):
    """Opens the socket as aiormq would, and keeps hold of it."""

    def __init__(self, factory: TransportFactory) -> None:
        self._factory = factory
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: Any, **settings: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await self._factory.create(url, **settings)
        return reader, self._writer

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class _Frames:
    """What the broker says while a connection is made. aiormq does not read a refusal where it waits for something else: of a
    vhost that is not there it says only that another frame came."""

    def __init__(self, frames: Any) -> None:
        self._frames = frames

    async def get_frame(self) -> Any:
        weight, channel, frame = await self._frames.get_frame()
        if isinstance(frame, spec.Connection.Close) and frame.reply_code in _REFUSALS:
            raise _REFUSALS[frame.reply_code](frame.reply_text)
        return weight, channel, frame


class _Candid(aiormq.Connection):
    """Says why it was refused."""

    @staticmethod
    async def _rpc(request: Any, writer: Any, frame_receiver: Any, wait_response: bool = True) -> Any:
        return await aiormq.Connection._rpc(request, writer, _Frames(frame_receiver), wait_response)  # type: ignore[arg-type]  # noqa: SLF001


async def connect(server: str, until: float) -> AmqpConnection:
    """A connection to the server of this URL. Raises TROUBLE."""
    socket = _Socket(TLSTransportFactory() if server.startswith("amqps:") else TCPTransportFactory())
    with _quiet():
        connection = _Candid(server, transport_factory=socket)
        try:
            await in_time(connection.connect(), until, socket.abort)
        except BaseException:
            socket.abort()  # a broker that refuses us may leave it open, and aiormq does
            raise
    return AmqpConnection(connection, socket)


async def open_producer(server: str, until: float) -> ProducerConnection:
    """Return a new connection to send by. Raises TROUBLE."""
    connection = await connect(server, until)
    return ProducerConnection(server, connection, await connection.channel(until))


async def in_time(doing: Any, until: float, give_up: Any) -> Any:
    """What it answers; TimeoutError, and it is left behind, when it takes too long: its own tidying up may hang."""
    task = asyncio.ensure_future(doing)
    try:
        await asyncio.wait({task}, timeout=max(until - monotonic(), 0))
        if task.done():
            return task.result()
        raise TimeoutError
    finally:
        if not task.done():
            give_up()
            task.cancel()
            _keep(task)


def leave_behind(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more; what it raises is nobody's."""
    task.cancel()
    _keep(task)


def behind_us(doing: Any) -> asyncio.Task[None]:
    async def quietly() -> None:
        with suppress(Exception, asyncio.CancelledError):
            await doing

    task = asyncio.ensure_future(quietly())
    _keep(task)
    return task


def _keep(task: asyncio.Task[Any]) -> None:
    _behind.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _behind.discard(task)
    if not task.cancelled():
        task.exception()


@contextmanager
def _quiet() -> Iterator[None]:
    """Tasks that begin in here are known as ours."""
    before = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(before)
