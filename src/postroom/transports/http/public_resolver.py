"""The resolver that knows only public addresses."""

from __future__ import annotations

import socket

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from postroom.transports.http.public_ip import is_public


class NotPublic(Exception):
    """The name leads to an address that is not of the public internet. Caught by the publisher."""


class PublicResolver(AbstractResolver):
    """Resolve a name, and refuse it when any of its addresses is not public.

    The connection is made to an address this answers, not to the name: a name that changes its mind between the check
    and the connection gains nothing.
    """

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            if not is_public(result["host"]):
                raise NotPublic(f"{host} leads to {result['host']}, which is no public address")
        return found

    async def close(self) -> None:
        await self._resolver.close()
