"""The receiver as a server of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from yarl import URL

from postroom.errors import ConfigError, TransportUnavailable
from postroom.transports.http.desk import PREFETCH_DEFAULT, Desk
from postroom.transports.http.replies import problem
from postroom.urls import redact

EXAMPLE = "http://0.0.0.0:8080/hooks"
STOP_SECONDS = 5.0


class HttpConsumer(Desk):
    """Listen at the URL's address, and take events that are sent to its path.

    ```python
    HttpConsumer("http://0.0.0.0:8080/hooks", secrets=["whsec_…"])
    ```

    It speaks plain HTTP: have TLS ended before it.
    """

    def __init__(self, url: str, *, secrets: Sequence[str] = (), prefetch: int = PREFETCH_DEFAULT) -> None:
        super().__init__(secrets=secrets, prefetch=prefetch)
        self._url = _read_url(url)
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Where it listens; with a port 0 in the URL, the one that was free."""
        addresses = self._runner.addresses if self._runner is not None else []
        return str(self._url.with_port(addresses[0][1]) if addresses else self._url)

    async def open(self) -> None:
        if self._runner is not None:
            return
        # A sender that hangs up cancels its handler, which is how we know.
        server = web.Server(self._handle, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._url.host, self._url.port).start()
        except OSError as error:
            await runner.cleanup()
            where = f"{self._url.host}:{self._url.port}"
            raise TransportUnavailable(
                f"Nobody can listen at {where}: {error.strerror or error}; end who does, or give another port."
            ) from error
        self._runner = runner
        await super().open()

    async def close(self) -> None:
        await super().close()
        runner, self._runner = self._runner, None
        if runner is not None:
            # Answers that are known by now are still sent.
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == self._url.path:
            answer = await self.answer(request.method, request.path, request.raw_headers, _body(request))
        else:
            answer = problem(404, f"Events are taken at {self._url.path}.")
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    async for part in request.content.iter_any():
        yield part


def _read_url(url: str) -> URL:
    try:
        read = URL(url)
    except ValueError as error:
        raise ConfigError(f"{redact(url)} is no URL that can be read: check its host and port.") from error
    if read.scheme != "http" or not read.host or read.query_string or read.fragment or read.user or read.password:
        raise ConfigError(f"{redact(url)} is nothing to listen at; give an address and a path, like {EXAMPLE}.")
    return read
