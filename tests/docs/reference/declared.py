"""stores.md and transports.md: what each of them declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from tests.docs.reference.made import MADE, explained, table

from postroom.contracts.transport import Consumer, ConsumerOptions
from postroom.stores import STORES as KNOWN_STORES
from postroom.stores import open_store
from postroom.transports import TRANSPORTS, open_consumer, open_publisher, received

STORES = f"""# Stores

{MADE}

The same promises hold on every store: each passes the whole contract suite of `postroom.testing.contracts` against the real
server. A case is skipped only where the store declares that it does not apply; these are the declarations.

{{urls}}

{{table}}

## What else to know

- **MariaDB** is what `mysql` is tested with. MySQL 8 is written for; its tests run where `POSTROOM_TEST_MYSQL` names a
  server, and ours have none.
- **MongoDB** keeps a transaction open whose client was killed, until `transactionLifetimeLimitSeconds` (60 by default) are
  over: a relay that dies in the middle of one keeps its lanes waiting for so long.
- **MongoDB as a standalone server** is refused, unless its URL has `postroom_transactions=off`. Then no message commits with
  your data, several put together are not all or none, numbers may be off by what moves while they are counted, and a command
  that was killed halfway is made good by the next, or by the next takeover: see
  [Work without transactions](../how-to/without-transactions.md#on-a-standalone-server).
"""


TRANSPORTS_PAGE = f"""# Transports

{MADE}

Each passes the contract suite of `postroom.testing.contracts` against a real server: Apache Kafka, RabbitMQ, NATS JetStream,
Valkey, moto's SQS, an HTTP server, a function. A case is skipped only where these declarations say that it does not apply.

## Sending

{{to}}

{{publishers}}

## Receiving

{{consumers}}

## What else to know

- **Kafka, RabbitMQ, NATS and Redis**: which settings of the broker weaken these promises, `postroom doctor` says.
- **RabbitMQ** here is 3.10, **Redis** is Valkey 8.1, **SQS** is moto: nothing else was to be had for the tests. What AWS alone
  does (throttling, refused credentials) is tested against a scripted server.
- **HTTP**: what was not received is kept by its sender, which is a relay, and tries again.
"""


def stores() -> str:
    """What each store declares."""
    examples = [
        *dict.fromkeys(known.example for known in KNOWN_STORES.values()),
        "mongodb://host/database?postroom_transactions=off",
    ]
    declared = [(url, open_store(url).capabilities) for url in examples]
    return STORES.format(urls=urls("store", declared), table=declarations(declared))


def transports() -> str:
    """What each transport declares, for sending and for receiving."""
    known = {each.module: each for each in reversed(TRANSPORTS.values())}
    known = {each.module: known[each.module] for each in TRANSPORTS.values()}
    publishers = [(each.example, open_publisher(_openable(each.example)).capabilities) for each in known.values()]
    receiving = [each for each in known.values() if each.receives is not None]
    consumers = [(each.example, _consumer(_openable(each.example)).capabilities) for each in receiving]
    return TRANSPORTS_PAGE.format(
        to=urls("transport", publishers),
        publishers=declarations(publishers),
        consumers=declarations(consumers),
    )


def _openable(example: str) -> str:
    """The same, of a function that is there."""
    return example.replace("shop.mail:send", "builtins:print")


def urls(what: str, declared: Sequence[tuple[str, Any]]) -> str:
    """How each of these is named."""
    return table(
        [[what, "URL"], *([title, f"`{url}`"] for title, (url, _) in zip(titles(declared), declared, strict=True))]
    )


def declarations(declared: Sequence[tuple[str, Any]]) -> str:
    """A row for each declaration, with what it says in its own words."""
    words = explained(type(declared[0][1]))
    names = [field.name for field in fields(declared[0][1]) if field.name not in {"name", "topic"}]
    names = [name for name in names if any(getattr(c, name) is not None for _, c in declared)]
    rows = [[f"`{name}`", *(_shown(getattr(c, name)) for _, c in declared), words.get(name, "")] for name in names]
    return table([["", *titles(declared), "what it says"], *rows])


def titles(declared: Sequence[tuple[str, Any]]) -> list[str]:
    """What each is called here: where two have a name, by what their URLs say as well."""
    known: set[str] = set()
    found = []
    for url, c in declared:
        found.append(_apart(c.name, url) if c.name in known else c.name)
        known.add(c.name)
    return found


def _apart(name: str, url: str) -> str:
    return f"{name}, {url.partition('?')[2].removeprefix('postroom_').replace('=', ' ')}"


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return "none" if not value else f"{value.total_seconds() * 1e6:g} µs"
        case int():
            return f"{value:,}"
        case None:
            return ""
        case _:
            return str(value)


def _consumer(url: str) -> Consumer:
    return open_consumer(url, ConsumerOptions(unsigned="unsigned" in received(url)))
