"""Which settings of the server, and of the URL, make a confirmed message less safe than it could be."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.transports.redis_streams import server
from postroom.transports.redis_streams.connection import Away, Lost, RedisConnection
from postroom.transports.redis_streams.server import Facts
from postroom.transports.redis_streams.url import RedisUrl, read
from postroom.transports.refusals import not_opened

SECONDS = 5.0


async def weaknesses(url: str) -> list[str]:
    """A sentence for each weakness, with its remedy; none when all is well. Raises TransportUnavailable, ConfigError."""
    chosen = read(url)
    connection = RedisConnection(chosen)
    try:
        await connection.connect(SECONDS)
        facts = await server.ask(connection, SECONDS)
    except (Away, Lost) as away:
        sentence = f"No Redis answers at {chosen.shown}: {away.error}; start it, or correct the URL."
        raise not_opened(away.code, sentence) from None
    finally:
        await connection.close()
    return list(judge(facts, chosen))


def judge(facts: Facts, chosen: RedisUrl) -> Iterator[str]:
    """The same, of what is known already."""
    if facts.is_cluster:
        yield "It is a node of a cluster, which Postroom does not speak to; give a server that has all streams."
    if facts.is_replica:
        yield "It is a replica, which takes no messages; give the primary."
    yield from _disk(facts, chosen)
    if facts.policy is None:
        yield "It does not tell its maxmemory-policy; make sure that it is noeviction."
    elif facts.policy.startswith("allkeys"):
        yield f"maxmemory-policy is {facts.policy}: short of memory, it drops whole streams; set noeviction."
    elif facts.policy != "noeviction":
        yield f"maxmemory-policy is {facts.policy}: short of memory, it drops streams that expire; set noeviction."
    if chosen.maxlen is not None:
        yield f"maxlen={chosen.maxlen} drops entries before they are read; leave it out, and trim what all groups have read."
    yield from _replicas(facts, chosen)


def _disk(facts: Facts, chosen: RedisUrl) -> Iterator[str]:
    if facts.has_aof is None:
        yield "It does not tell whether it keeps an append-only file; make sure that appendonly is yes."
    elif not facts.has_aof:
        yield "appendonly is no: a crash loses all that came since its last snapshot; set appendonly yes."
    elif not chosen.waitaof and facts.fsync is None:
        yield "It does not tell its appendfsync; add waitaof=1 to the URL, which waits for the disk."
    elif not chosen.waitaof and facts.fsync != "always":
        yield (
            f"appendfsync is {facts.fsync}: a power failure loses confirmed messages; set appendfsync always, or add "
            "waitaof=1 to the URL."
        )
    elif chosen.waitaof and facts.fsync == "no":
        yield "appendfsync is no, so waitaof=1 waits for the system's next flush; set appendfsync everysec, or always."


def _replicas(facts: Facts, chosen: RedisUrl) -> Iterator[str]:
    if facts.is_replica:
        return
    if facts.replicas is not None and facts.replicas < max(chosen.wait, 1):
        yield (
            f"It has {facts.replicas} replicas: with its disk all messages are lost; attach {max(chosen.wait, 1)}, and add "
            f"wait={max(chosen.wait, 1)} to the URL."
        )
    elif not chosen.wait:
        yield "Replicas follow later: a failover loses confirmed messages; add wait=1 to the URL."
