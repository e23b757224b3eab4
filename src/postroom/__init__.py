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

from postroom.config.tables import TableNames
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
from postroom.message import Message
from postroom.outbox.outbox import Outbox
from postroom.validation import Limits

if TYPE_CHECKING:
    from postroom.config.values import RelayConfig, Settings
    from postroom.contracts.store import Store
    from postroom.contracts.transport import Consumer, Publisher
    from postroom.inbox import Inbox, InboxWorker
    from postroom.inbox.errors import RejectMessage, RetryLater
    from postroom.relay import Relay, Route
    from postroom.retry import RetryPolicy
    from postroom.stores import open_store, open_waker
    from postroom.transports import open_consumer, open_publisher

__version__ = "0.1.0.dev0"

__all__ = [
    "ConfigError",
    "Consumer",
    "DuplicateMessage",
    "Inbox",
    "InboxWorker",
    "InvalidMessage",
    "Limits",
    "Message",
    "MissingDependency",
    "NotInTransaction",
    "Outbox",
    "PostroomError",
    "Publisher",
    "RejectMessage",
    "Relay",
    "RelayConfig",
    "RetryLater",
    "RetryPolicy",
    "Route",
    "SchemaMismatch",
    "Settings",
    "Store",
    "StoreUnavailable",
    "TableNames",
    "UnknownHandle",
    "open_consumer",
    "open_publisher",
    "open_store",
    "open_waker",
]

_LATER = {
    "Consumer": "postroom.contracts.transport",
    "Inbox": "postroom.inbox",
    "InboxWorker": "postroom.inbox",
    "open_consumer": "postroom.transports",
    "Publisher": "postroom.contracts.transport",
    "RejectMessage": "postroom.inbox.errors",
    "Relay": "postroom.relay",
    "RelayConfig": "postroom.config.values",
    "RetryLater": "postroom.inbox.errors",
    "RetryPolicy": "postroom.retry",
    "Route": "postroom.relay",
    "Settings": "postroom.config.values",
    "Store": "postroom.contracts.store",
    "open_store": "postroom.stores",
    "open_publisher": "postroom.transports",
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
