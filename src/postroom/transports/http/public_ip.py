"""Which addresses a stranger's URL may lead to: those of the public internet, and nothing that leads inside. And the resolver
that knows no other."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

# `is_global` alone is not enough: it differs between versions of Python, and in some it is true for multicast,
# for 192.0.0.8 and for IPv4 addresses wrapped into IPv6 ones.
_DENIED_4 = (
    IPv4Network("100.64.0.0/10"),  # carrier-grade NAT
    IPv4Network("192.0.0.0/24"),  # protocol assignments
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("168.63.129.16/32"),  # a public number, but inside Azure the host's own services
)
_UNICAST_6 = IPv6Network("2000::/3")
_DENIED_6 = (
    IPv6Network("2001::/23"),  # protocol assignments, with Teredo
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4: any IPv4 address, wrapped
    IPv6Network("3fff::/20"),  # documentation
)
_NAT64 = IPv6Network("64:ff9b::/96")
_NUMBERS = re.compile(r"[0-9.]+")


def is_public(address: str) -> bool:
    """Is this address, written as a resolver writes it, one of the public internet? What is not an address is not.

    An IPv4 address inside an IPv6 one (mapped, NAT64) is judged itself; 6to4 and Teredo are never public.

    >>> is_public("93.184.215.14"), is_public("64:ff9b::a9fe:a9fe"), is_public("0177.0.0.1")
    (True, False, False)
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _is_public_4(found) if isinstance(found, IPv4Address) else _is_public_6(found)


def is_literal(host: str) -> bool:
    """Is the host of a URL an address, in whatever spelling, that a client may connect to without asking a resolver?

    >>> is_literal("::1"), is_literal("2130706433"), is_literal("0x7f000001"), is_literal("example.com")
    (True, True, False, False)
    """
    return ":" in host or _NUMBERS.fullmatch(host) is not None


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
                raise NotPublic(f"{host} leads to {result['host']}, which is not a public address")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _is_public_4(address: IPv4Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _DENIED_4)
    )


def _is_public_6(address: IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if address in _NAT64:
        return _is_public_4(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address.is_global and address in _UNICAST_6 and not any(address in network for network in _DENIED_6)
