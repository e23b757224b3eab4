"""What the server says of itself: its version, and the settings by which a confirmed message is safe, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from postroom.errors import ConfigError
from postroom.transports.redis_streams.connection import RedisConnection
from postroom.transports.redis_streams.url import RedisUrl

OLDEST = (7, 0)
LARGEST_DEFAULT = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None: it did not tell, as managed servers may not."""

    version: tuple[int, ...] | None = None
    is_cluster: bool = False
    is_replica: bool = False
    replicas: int | None = None
    has_aof: bool | None = None
    fsync: str | None = None
    policy: str | None = None
    largest: int = LARGEST_DEFAULT
    """The longest value that it takes; with a longer one it hangs up."""


async def ask(connection: RedisConnection, seconds: float) -> Facts:
    """Whatever it tells. Raises Lost."""
    asked = [("INFO",), *(("CONFIG", "GET", name) for name in ("appendfsync", "proto-max-bulk-len"))]
    info, fsync, largest = await connection.ask(*asked, seconds=seconds)
    told = {} if isinstance(info, RedisError) else _lines(info)
    return Facts(
        version=_version(told.get("redis_version")),
        is_cluster=told.get("cluster_enabled") == "1",
        is_replica=told.get("role") == "slave",
        replicas=int(told["connected_slaves"]) if "connected_slaves" in told else None,
        has_aof=told["aof_enabled"] == "1" if "aof_enabled" in told else None,
        policy=told.get("maxmemory_policy"),
        fsync=_setting(fsync),
        largest=int(_setting(largest) or LARGEST_DEFAULT),
    )


def check(facts: Facts, settings: RedisUrl) -> None:
    """ConfigError where this server cannot do what the URL asks."""
    if facts.version is not None and facts.version < OLDEST:
        number = ".".join(map(str, facts.version))
        raise ConfigError(f"{settings.shown} is Redis {number}; Postroom needs Redis 7.0, or Valkey.")
    if facts.is_cluster:
        raise ConfigError(
            f"{settings.shown} is a node of a cluster; give a server, or a primary, that has all streams."
        )
    if settings.waitaof and facts.has_aof is False:
        raise ConfigError(
            f"{settings.shown} keeps no append-only file, which waitaof=1 waits for; set appendonly yes, or leave it out."
        )


def _lines(info: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _version(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(int(part) for part in text.split(".") if part.isdecimal())


def _setting(answer: Any) -> str | None:
    """The value in `CONFIG GET`'s answer; None where it is refused, or unknown."""
    if isinstance(answer, RedisError) or len(answer) < 2:
        return None
    value: bytes = answer[1]
    return value.decode()
