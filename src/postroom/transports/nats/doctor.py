"""What at a NATS server weakens what Postroom promises, for `postroom doctor`."""

from __future__ import annotations

from postroom.transports.nats import streams
from postroom.transports.nats import url as settings
from postroom.transports.nats.connection import connect
from postroom.transports.nats.interest import unread_at


async def weaknesses(url: str) -> list[str]:
    """A sentence for each setting of the URL's stream that weakens the promise, with the remedy; none when it is fine.

    Raises ConfigError when there is no such stream, TransportUnavailable when the server is away."""
    read = settings.read(url)
    connection = await connect(read)
    try:
        config = await streams.config_of(connection, read)
        unread = await unread_at(connection, config, read)
    finally:
        await connection.close()
    return [
        *streams.unusable(config, read),
        *unread,
        *streams.weaknesses_of(config, read),
        *streams.forgets_soon(config, read),
    ]
