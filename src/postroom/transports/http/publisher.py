"""The sending side: one POST for each message, many at a time, those of a key one after the other."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from postroom.clock import monotonic, utcnow
from postroom.contracts.transport import (
    Envelope,
    Failed,
    Outcome,
    Rejected,
    TransportCapabilities,
    Unavailable,
)
from postroom.errors import ConfigError
from postroom.message import Message
from postroom.transports.http.encoding import headers_of
from postroom.transports.http.outcomes import cut, outcome_of, read_retry_after
from postroom.transports.http.public_ip import NotPublic, PublicResolver, is_literal, is_public
from postroom.transports.http.signature import read_secret
from postroom.transports.ordering import KeyOrder
from postroom.transports.publishing import CLOSED, Calls, Deadline, checked_source, timeout_at
from postroom.urls import HIDDEN, redact, secrets_in

CONCURRENCY_DEFAULT = 16
START_SHARE = 0.5
"""Nothing is begun in the second half of the time: it would have less of it than the first, and fail for that alone."""
RESPONSE_MAX = 64 * 1024
"""How many bytes of an answer are read; the connection of a longer one is closed."""
# Receivers close idle connections, many after 5 seconds; a POST that meets the closing may or may not have arrived.
_KEEP_ALIVE_SECONDS = 4
_BODY_SECONDS = 1


class HttpPublisher:
    """Deliver each message as a CloudEvent by POST; a 2xx answer is the receiver's word that it has it.

    ```python
    HttpPublisher("https://shop.example/hooks", source="https://billing.example", secrets=["whsec_…"])
    ```

    Give the new secret beside the old one while receivers change over. `public_only` is for URLs that strangers give
    you: it refuses every address inside your network. Redirects are never followed, proxies of the environment never used.
    """

    def __init__(
        self,
        url: str,
        *,
        source: str = "postroom",
        secrets: Sequence[str] = (),
        public_only: bool = False,
        concurrency: int = CONCURRENCY_DEFAULT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency}; give 1 or more.", concurrency=concurrency)
        self._url, self._authorization = _read_url(url)
        if public_only and self._authorization:
            raise ConfigError(f"{redact(url)} has a user in it; with public_only give the URL without one.")
        self._secrets = secrets_in(url)
        """What is hidden of the URL: a receiver that does not know a path likes to repeat it."""
        self._source = checked_source(source)
        self._keys = [read_secret(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
        self._public_only = public_only
        self._concurrency = concurrency
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._calls = Calls()

    @property
    def capabilities(self) -> TransportCapabilities:
        return TransportCapabilities(name="http", durable=True, ordered=True, batches=False)

    async def open(self) -> None:
        """Get ready. Nothing is asked of the receiver: it is away when a message finds it so."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                # A small answer may unpack to a huge one, so it stays packed and none is asked for.
                auto_decompress=False,
                skip_auto_headers={"Accept-Encoding"},
                headers={"User-Agent": "postroom"},
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                trace_configs=[_noting_connections()],
            )
        self._calls.open()

    async def publish(self, batch: Sequence[Envelope], *, timeout: timedelta) -> Sequence[Outcome]:
        return await self._calls.run(self._publish, batch, timeout)

    async def close(self) -> None:
        await self._calls.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _publish(self, batch: Sequence[Envelope], by: Deadline) -> Sequence[Outcome]:
        session = self._session
        if session is None:
            return [CLOSED] * len(batch)
        order, last_start = KeyOrder([message.key for message, _ in batch]), by.after(START_SHARE)
        is_refused = False

        async def work(heads: Iterator[int]) -> None:
            nonlocal is_refused
            for head in heads:
                place: int | None = head
                while place is not None and not is_refused and monotonic() < last_start:
                    outcome = await self._send(session, batch[place].message, by.until)
                    # What is wrong with the URL is wrong for all: the rest need not be asked.
                    is_refused |= isinstance(outcome, Unavailable)
                    place = order.settle(place, outcome)

        waiting = iter(order.first)
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._concurrency, len(order.first))):
                workers.create_task(work(waiting))
        return order.outcomes

    async def _send(self, session: aiohttp.ClientSession, message: Message, until: float) -> Outcome:
        host = self._url.host or ""
        if self._public_only and is_literal(host) and not is_public(host):
            return Rejected("SSRF_BLOCKED", f"{host} is not a public address")
        request = SimpleNamespace(is_connected=False)
        try:
            headers = headers_of(message, source=self._source, keys=self._keys) | self._authorization
            async with timeout_at(until):
                response = await session.post(
                    self._url,
                    data=message.body or b"",
                    headers=headers,
                    allow_redirects=False,
                    trace_request_ctx=request,
                )
        except NotPublic as error:
            return Rejected("SSRF_BLOCKED", self._shown(str(error)))
        except aiohttp.InvalidURL as error:
            return Rejected("INVALID_URL", self._shown(str(error)))
        except (aiohttp.ClientError, OSError) as error:
            return _broken(error, self._shown(str(error)), was_connected=request.is_connected)
        except ValueError as error:
            return Rejected("INVALID_MESSAGE", cut(str(error)))
        said = f"{response.status} {response.reason or ''}"
        # A stranger's URL must not become a way to read what stands behind it.
        if (body := await _read(response, until)) and not self._public_only:
            said += f": {body.decode(errors='replace')}"
        return outcome_of(
            response.status, self._shown(said), read_retry_after(response.headers.get("Retry-After"), utcnow())
        )

    def _shown(self, text: str) -> str:
        """What the receiver or the library says, without the secrets in our URL."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return cut(text)

    def _connector(self) -> aiohttp.TCPConnector:
        tls = True if self._tls is None else self._tls
        if not self._public_only:
            return aiohttp.TCPConnector(limit=self._concurrency, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=tls)
        return aiohttp.TCPConnector(
            limit=self._concurrency,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            ssl=tls,
            resolver=PublicResolver(),
            use_dns_cache=False,
        )


def _read_url(url: str) -> tuple[URL, dict[str, str]]:
    """The URL without a user in it, and the header that says who that was."""
    try:
        read = URL(url)
    except ValueError:  # what it says may quote a password
        raise ConfigError(f"{redact(url)} is not a URL that can be read: check its host and port.") from None
    if read.scheme not in {"http", "https"} or not read.host:
        raise ConfigError(f"{redact(url)} names no HTTP receiver; give one like https://shop.example/hooks.")
    if read.user is None and read.password is None:
        return read, {}
    user = base64.b64encode(f"{read.user or ''}:{read.password or ''}".encode()).decode()
    return read.with_user(None), {"authorization": f"Basic {user}"}


def _noting_connections() -> aiohttp.TraceConfig:
    """Notes when a request has its connection: before that nothing was sent, after it something may have been."""

    async def note(session: aiohttp.ClientSession, context: SimpleNamespace, event: Any) -> None:  # noqa: ARG001
        context.trace_request_ctx.is_connected = True

    noting = aiohttp.TraceConfig()
    noting.on_connection_create_end.append(note)
    noting.on_connection_reuseconn.append(note)
    return noting


def _broken(error: Exception, said: str, *, was_connected: bool) -> Outcome:
    is_late = isinstance(error, TimeoutError)
    said = said or ("no answer in time" if is_late else type(error).__name__)
    if was_connected:
        return Failed("TIMEOUT" if is_late else "CONNECTION_BROKEN", said, unknown=True)
    if is_late:
        return Unavailable("CONNECT_TIMEOUT", said)
    if isinstance(error, aiohttp.ClientSSLError):
        return Unavailable("TLS_FAILED", said)
    is_unresolved = isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, socket.gaierror)
    return Unavailable("DNS_FAILED" if is_unresolved else "CONNECT_FAILED", said)


async def _read(response: aiohttp.ClientResponse, until: float) -> bytes:
    """The beginning of the answer's body, as far as it comes soon: the status has decided, this is only for people."""
    body = bytearray()
    soon = min(until, monotonic() + _BODY_SECONDS)
    try:
        async with timeout_at(soon):
            while len(body) <= RESPONSE_MAX and (part := await response.content.read(RESPONSE_MAX + 1 - len(body))):
                body += part
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        # With all of it read the connection has gone back for the next message, and this does nothing.
        response.close()
    return bytes(body[:RESPONSE_MAX])
