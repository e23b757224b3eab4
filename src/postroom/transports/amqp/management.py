"""What RabbitMQ's management tells over HTTP and AMQP does not: its nodes, its policies, and which queues an exchange fills."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from postroom.errors import TransportUnavailable
from postroom.transports.amqp.url import AmqpUrl
from postroom.urls import redact

SECONDS = 5.0
NODES_GOOD = 3
"""Fewer, and a queue cannot be on a majority that outlives one of them."""


class Management:
    """The management of one broker, at the URL that the address names."""

    def __init__(self, where: AmqpUrl) -> None:
        parts = urlsplit(where.management or "")
        self._shown = redact(where.management or "")
        self._base = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        self._key = base64.b64encode(user.encode()).decode()
        self._vhost = quote(where.vhost, safe="")

    async def nodes(self) -> int:
        """How many nodes of the cluster are running."""
        return sum(bool(node.get("running")) for node in await self._ask("nodes"))

    async def policy(self, kind: str, name: str) -> dict[str, str]:
        """What policies set of this one of the `exchanges` or `queues`, the operator's too. RabbitMQ itself tells it of a
        queue some seconds late, and of an exchange not at all."""
        found: dict[str, str] = {}
        for which in ("policies", "operator-policies"):
            policies = await self._ask(f"{which}/{self._vhost}")
            matching = [each for each in policies if _is_meant(each, kind, name)]
            chosen: dict[str, Any] = max(
                matching, key=lambda each: int(each.get("priority", 0)), default={"definition": {}}
            )
            found |= {str(setting): str(value) for setting, value in chosen["definition"].items()}
        return found

    async def queues_of(self, exchange: str) -> list[str]:
        """The queues that are bound to it."""
        path = f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        bindings = await self._ask(path)
        return sorted({each["destination"] for each in bindings if each["destination_type"] == "queue"})

    async def _ask(self, path: str) -> Any:
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> Any:
        # The scheme was checked when the URL was read.
        request = Request(f"{self._base}/api/{path}", headers={"Authorization": f"Basic {self._key}"})  # noqa: S310
        try:
            with urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the same
                return json.load(answer)
        except (URLError, OSError, ValueError) as exc:
            raise TransportUnavailable(
                f"RabbitMQ's management does not answer at {self._shown}: {exc}; correct management=…, or leave it out."
            ) from None


def _is_meant(policy: Mapping[str, Any], kind: str, name: str) -> bool:
    to = str(policy.get("apply-to", "all"))
    try:
        return (to == "all" or to.endswith(kind)) and re.search(policy["pattern"], name) is not None
    except re.error:  # Erlang knows patterns that Python does not
        return True
