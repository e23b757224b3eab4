"""An SQS that answers what a test tells it to, over HTTP: for what no server can be made to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from aiohttp import web

Entries: TypeAlias = Sequence[dict[str, Any]]
Answer: TypeAlias = tuple[int, dict[str, Any]]
SETTINGS = {"MaximumMessageSize": "262144", "VisibilityTimeout": "30"}


def all_sent(entries: Entries) -> Answer:
    return 200, {"Successful": [{"Id": entry["Id"], "MessageId": entry["Id"]} for entry in entries], "Failed": []}


def error(code: str, status: int = 400, said: str = "as the test wants it") -> Answer:
    return status, {"__type": f"com.amazonaws.sqs#{code}", "message": said}


class ScriptedSqs:
    """Every queue is there; what is sent to it is answered by `answer`."""

    def __init__(self) -> None:
        self.url = ""
        self.answer: Callable[[Entries], Answer] = all_sent
        self.lookup: Answer | None = None
        """What GetQueueUrl answers, if not where it is."""
        self.settings: dict[str, str] | Answer = SETTINGS
        self.delay = 0.0
        """Seconds until it answers."""
        self.requests: list[Entries] = []
        self.received: Callable[[], Answer] = lambda: (200, {})
        """What ReceiveMessage answers."""
        self.listed: Answer = (200, {})
        """What ListQueues answers."""

    async def handle(self, request: web.Request) -> web.Response:
        asked: dict[str, Any] = await request.json()
        status: int
        answer: dict[str, Any]
        match request.headers["X-Amz-Target"].partition(".")[2]:
            case "GetQueueUrl":
                status, answer = 200, {"QueueUrl": f"http://{request.host}/123456789012/{asked['QueueName']}"}
                if self.lookup is not None:
                    status, answer = self.lookup
            case "GetQueueAttributes":
                settings = self.settings
                status, answer = settings if isinstance(settings, tuple) else (200, {"Attributes": settings})
            case "SendMessageBatch":
                self.requests.append(asked["Entries"])
                await asyncio.sleep(self.delay)
                status, answer = self.answer(asked["Entries"])
            case "ReceiveMessage":
                status, answer = self.received()
            case "ListQueues":
                status, answer = self.listed
            case other:
                raise AssertionError(other)
        return web.json_response(answer, status=status, content_type="application/x-amz-json-1.0")


@asynccontextmanager
async def scripted_sqs() -> AsyncIterator[ScriptedSqs]:
    """One that listens."""
    script = ScriptedSqs()
    app = web.Application(client_max_size=4 * 1024 * 1024)
    app.router.add_post("/{path:.*}", script.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    script.url = f"sqs://eu-central-1?endpoint=http://{host}:{port}"
    try:
        yield script
    finally:
        await runner.cleanup()
