"""Postroom: your data and your message, one commit.

```
   your transaction                                                             their transaction
 ┌──────────────────┐                                                         ┌──────────────────────┐
 │ your rows        │                                                         │            your rows │
 │ outbox.put ──────┼─▶ store ─▶ relay ─▶ transport ~~~ broker ~~~ transport ─┼─▶ inbox ──▶ handler  │
 └──────────────────┘       claim·publish·settle                              └──────────────────────┘
```

Importing this loads no driver and no third-party package.
"""

from typing import TYPE_CHECKING, Any

from postroom.errors import (
    ConfigError,
    DuplicateMessage,
    InvalidMessage,
    MissingDependency,
    NotInTransaction,
    PostroomError,
    SchemaMismatch,
    StoreUnavailable,
    UnknownHandle,
)
from postroom.limits import Limits
from postroom.message import Message
from postroom.outbox import Outbox
from postroom.tables import TableNames

if TYPE_CHECKING:
    from postroom.config import RelayConfig, Settings
    from postroom.inbox import Inbox, Reception
    from postroom.inbox_store import InboxStore
    from postroom.relay import Relay, Route
    from postroom.retry import RetryPolicy
    from postroom.store import Store
    from postroom.stores import open_inbox_store, open_store, open_waker
    from postroom.transport import Consumer, Publisher
    from postroom.transports import open_consumer, open_transport

__version__ = "0.1.0.dev0"

__all__ = [
    "ConfigError",
    "Consumer",
    "DuplicateMessage",
    "Inbox",
    "InboxStore",
    "InvalidMessage",
    "Limits",
    "Message",
    "MissingDependency",
    "NotInTransaction",
    "Outbox",
    "PostroomError",
    "Publisher",
    "Reception",
    "Relay",
    "RelayConfig",
    "RetryPolicy",
    "Route",
    "SchemaMismatch",
    "Settings",
    "Store",
    "StoreUnavailable",
    "TableNames",
    "UnknownHandle",
    "open_consumer",
    "open_inbox_store",
    "open_store",
    "open_transport",
    "open_waker",
]

_LATER = {
    "Consumer": "postroom.transport",
    "Inbox": "postroom.inbox",
    "InboxStore": "postroom.inbox_store",
    "Reception": "postroom.inbox",
    "open_consumer": "postroom.transports",
    "open_inbox_store": "postroom.stores",
    "Publisher": "postroom.transport",
    "Relay": "postroom.relay",
    "RelayConfig": "postroom.config",
    "RetryPolicy": "postroom.retry",
    "Route": "postroom.relay",
    "Settings": "postroom.config",
    "Store": "postroom.store",
    "open_store": "postroom.stores",
    "open_transport": "postroom.transports",
    "open_waker": "postroom.stores",
}
"""What a service that only puts messages never needs: loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
