"""What a stream must be like for Sent to be true, and what weakens it. Asking is here; judging is pure."""

from __future__ import annotations

from datetime import timedelta

from nats.errors import Error, NoRespondersError
from nats.js.api import DiscardPolicy, PersistMode, StorageType, StreamConfig
from nats.js.errors import NotFoundError, ServiceUnavailableError

from postroom.durations import format_duration
from postroom.errors import TransportRefused, TransportUnavailable
from postroom.transports.nats.connection import CONNECT_SECONDS, Connection
from postroom.transports.nats.url import NatsUrl, covers, is_subject

REPLICAS = 3
WINDOW_ENOUGH = timedelta(minutes=10)
KEPT = timedelta(days=7)
"""So long a receiver may be away: the replay window that an inbox has by default."""
_NOT_ENABLED = 10039


async def info_of(connection: Connection, stream: str) -> StreamConfig:
    """The settings of a stream, as the server has them. Raises what the library raises."""
    found = await connection.client.jetstream(timeout=CONNECT_SECONDS).stream_info(stream)
    config: StreamConfig = found.config
    return config


async def config_of(connection: Connection, settings: NatsUrl) -> StreamConfig:
    """The same; TransportRefused when there is no such stream, TransportUnavailable when JetStream does not answer."""
    try:
        return await info_of(connection, settings.stream)
    except NotFoundError:
        raise TransportRefused(
            f"There is no stream {settings.stream!r} at {settings.shown}; create it, or correct the URL."
        ) from None
    except (NoRespondersError, ServiceUnavailableError) as exc:
        if getattr(exc, "err_code", _NOT_ENABLED) == _NOT_ENABLED:
            raise TransportRefused(
                f"The server at {settings.shown} has no JetStream; start it with -js, or choose another."
            ) from None
        raise TransportUnavailable(f"JetStream at {settings.shown} is away: {exc}; wait for it.") from None
    except (TimeoutError, OSError, Error) as exc:
        raise TransportUnavailable(
            f"JetStream at {settings.shown} does not answer ({exc}); look at the server, and at what our user may do."
        ) from None


def unusable(config: StreamConfig, settings: NatsUrl) -> list[str]:
    """Why nothing can be sent there: what can never work."""
    shown, subject, found = settings.shown, settings.subject, []
    if config.no_ack:
        found.append(f"The stream {shown} confirms nothing (no_ack); set no_ack to false.")
    if config.sealed:
        found.append(f"The stream {shown} is sealed and takes nothing more; choose another.")
    if subject is not None and is_subject(subject) and not covers(config.subjects or [], subject):
        found.append(f"{shown} does not take the subject {subject!r}; add it to the stream, or correct the URL.")
    return found


def weaknesses_of(config: StreamConfig, settings: NatsUrl) -> list[str]:
    """What makes a confirmed message less than safe, a sentence each, with the remedy."""
    name, found = settings.shown, []
    if config.storage == StorageType.MEMORY:
        found.append(f"{name} is kept in memory: a restart of its servers empties it; use file storage.")
    if (config.num_replicas or 1) < REPLICAS:
        found.append(
            f"{name} has {config.num_replicas or 1} replica{'s' if (config.num_replicas or 1) > 1 else ''}: "
            f"what it confirmed is gone with a disk; use {REPLICAS}."
        )
    if config.persist_mode == PersistMode.ASYNC:
        found.append(f"{name} confirms before it writes (persist_mode async); set it to default.")
    if limits := _limits(config):
        found.append(
            f"{name} throws old messages away, read or not, when it has more than {' or '.join(limits)}; "
            f"set discard to new, and no limit for a subject alone."
        )
    if 0 < (config.max_age or 0) < KEPT.total_seconds():
        found.append(
            f"{name} deletes messages after {format_duration(timedelta(seconds=config.max_age or 0))}, read or not: a receiver "
            f"that is away for longer loses them; set max_age to {KEPT.days} days or more, or to 0."
        )
    if config.storage != StorageType.MEMORY and not settings.is_synced:
        found.append(
            f"Whether the servers of {name} write to the disk before they confirm cannot be asked, and by default they do "
            f"every two minutes: set sync_interval to always, and say ?sync=always in the URL."
        )
    return found


def forgets_soon(config: StreamConfig, settings: NatsUrl) -> list[str]:
    """How long the stream knows a message again, where that is short."""
    window = timedelta(seconds=config.duplicate_window or 0)
    if window >= WINDOW_ENOUGH:
        return []
    lasts, enough = format_duration(window), format_duration(WINDOW_ENOUGH)
    again = f"{settings.shown} recognises a repeated message for {lasts} only, and one that is repeated later is stored twice"
    return [f"{again}; raise duplicate_window to {enough}, or as long as a relay may be away."]


def _limits(config: StreamConfig) -> list[str]:
    found = []
    if config.discard != DiscardPolicy.NEW:
        if (config.max_msgs or -1) > 0:
            found.append(f"{config.max_msgs:,} messages")
        if (config.max_bytes or -1) > 0:
            found.append(f"{config.max_bytes:,} bytes")
    if config.max_msgs_per_subject > 0 and not config.discard_new_per_subject:
        found.append(f"{config.max_msgs_per_subject:,} messages of a subject")
    return found
