"""The receiver as an ASGI application: by itself, or among the routes of Starlette and FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from postroom.transports.http.open_requests import Answer, OpenRequests

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


class HungUp(Exception):
    """The sender went away before it had said all. Caught where the request is answered."""


class Receiver(OpenRequests):
    """Take webhooks in an application of your own, and hand them out as any `Consumer` does.

    ```python
    receiver = Receiver(secrets=["whsec_…"])
    app = Starlette(routes=[Route("/hooks", receiver)])
    ```

    It takes requests once it is opened: whoever receives from it does that, and so does an ASGI server that runs it alone.
    """

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Event, receive: Receive, send: Send) -> None:
        is_read = asyncio.Event()
        asked = self.answer(scope["method"], scope["path"], scope["headers"], _body(receive, is_read))
        answering = asyncio.create_task(asked)
        watching = asyncio.create_task(_hung_up(receive, is_read))
        try:
            await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await _say(answering.result(), send)
        except HungUp:
            pass
        finally:
            answering.cancel()
            watching.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                await self.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _body(receive: Receive, is_read: asyncio.Event) -> AsyncIterator[bytes]:
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise HungUp
        yield event.get("body", b"")
        if not event.get("more_body", False):
            is_read.set()
            return


async def _hung_up(receive: Receive, is_read: asyncio.Event) -> None:
    await is_read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _say(answer: Answer, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers]
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
