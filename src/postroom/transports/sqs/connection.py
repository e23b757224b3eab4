"""The way to SQS: a client of the AWS library, the queues it found, and what their settings say."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError

from postroom.contracts.transport import Rejected, Unavailable
from postroom.errors import ConfigError, TransportRefused
from postroom.transports.refusals import not_opened, why_not
from postroom.transports.sqs.outcomes import (
    NO_CREDENTIALS,
    NO_SUCH_QUEUE,
    NOT_ALLOWED,
    WHO_ARE_YOU,
    code_of,
    of_request,
    said_of,
)
from postroom.transports.sqs.url import SqsUrl, is_fifo

OPEN_SECONDS = 5.0
CONNECT_SECONDS = 3.0
READ_SECONDS = 60.0
"""Longer than anything waits here: whoever asks keeps the time."""
LARGEST_DEFAULT = 262_144
"""What every queue takes, and every batch, as long as its settings do not say more."""
HOLD_DEFAULT = 30
BATCH = 10
"""So many entries a request to SQS has, at most."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that is there."""

    name: str
    url: str
    largest: int
    """The largest message, in bytes, attributes included; as its settings say."""
    hold: int
    """The visibility time-out, in seconds."""
    settings: dict[str, str]
    """All that it says of itself; nothing where we may not ask."""

    @property
    def is_fifo(self) -> bool:
        return is_fifo(self.name)

    @property
    def largest_batch(self) -> int:
        """What all messages of one request may have together."""
        return max(self.largest, LARGEST_DEFAULT)


class SqsConnection:
    """A client, opened once, for many tasks at a time."""

    def __init__(self, address: SqsUrl, *, connections: int) -> None:
        self._address, self._connections = address, connections
        self._stack = AsyncExitStack()
        self.sqs: Any = None
        """The library's own client."""

    async def open(self) -> Self:
        """Make it. Nothing is asked of SQS yet; raises ConfigError for a profile that is not there."""
        config = AioConfig(
            # We try again ourselves: whoever waits is told at once, and a standard queue gets nothing twice in secret.
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=self._connections,
            # A name that is not there is told by SQS, which knows; and each look at the parameters takes as long as sending.
            parameter_validation=False,
        )
        try:
            session = AioSession(profile=self._address.profile)
            client = session.create_client(
                "sqs", region_name=self._address.region, endpoint_url=self._address.endpoint, config=config
            )
            self.sqs = await self._stack.enter_async_context(client)
        except (BotoCoreError, ValueError) as exc:
            raise ConfigError(f"{self._address.shown} cannot be opened: {_sentence(exc)}; correct it.") from exc
        return self

    async def close(self) -> None:
        """Let go of its connections. Twice is fine."""
        self.sqs = None
        await self._stack.aclose()

    async def queue(self, name: str) -> Queue:
        """The queue of this name, asked for now. Raises what the library raises."""
        owner = {"QueueOwnerAWSAccountId": self._address.account} if self._address.account else {}
        url = str((await self.sqs.get_queue_url(QueueName=name, **owner))["QueueUrl"])
        try:
            answer = await self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        except ClientError as exc:
            if code_of(exc) not in NOT_ALLOWED:
                raise
            answer = {}  # whoever may send need not be allowed to ask
        settings: dict[str, str] = answer.get("Attributes", {})
        largest, hold = settings.get("MaximumMessageSize"), settings.get("VisibilityTimeout")
        return Queue(name, url, int(largest or LARGEST_DEFAULT), int(hold or HOLD_DEFAULT), settings)

    async def look(self) -> Queue | None:
        """The queue of the URL; without one, whether SQS answers and knows us.

        Raises TransportRefused for what a person must correct, TransportUnavailable for what may pass."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                if self._address.queue is not None:
                    return await self.queue(self._address.queue)
                await self.sqs.list_queues(MaxResults=1)
        except (BotoCoreError, ClientError, OSError) as exc:
            self._judge(exc)
        return None

    def _judge(self, error: Exception) -> None:
        """Raise what `look` promises; nothing for what says that SQS knows us."""
        shown, said = self._address.shown, _sentence(error)
        if isinstance(error, NO_CREDENTIALS):
            raise TransportRefused(
                f"{shown} cannot be used without credentials: {said}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
                "profile, or a role."
            ) from error
        if isinstance(error, ClientError):
            code = code_of(error)
            if code in NO_SUCH_QUEUE:
                raise TransportRefused(f"{shown} has no such queue: {said}; create it, or correct the URL.") from error
            if code in WHO_ARE_YOU:
                raise TransportRefused(f"{shown} refuses our credentials ({code}): {said}; correct them.") from error
            if code in NOT_ALLOWED:
                if self._address.queue is None:
                    return
                raise TransportRefused(f"{shown} may not be used by us: {said}; allow it in IAM.") from error
        outcome = of_request(error, self._address.queue or "", of_the_url=True)
        if isinstance(outcome, Rejected):
            raise TransportRefused(f"{shown} is refused by SQS: {said}; correct the URL.") from error
        code = outcome.code if isinstance(outcome, Unavailable) else "no answer"
        sentence = f"No SQS answers at {shown} ({code}): {said}; start it, or correct the URL."
        raise not_opened(why_not(error) or code, sentence) from error


def _sentence(error: BaseException) -> str:
    said = said_of(error) if isinstance(error, ClientError) else str(error)
    return " ".join(said.split()).rstrip(".") or type(error).__name__
