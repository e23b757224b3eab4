"""Receiving: a message's effects happen once, because they commit with the row that says so.

```
   consumer ─▶ InboxWorker ─▶ a line per key ─▶ in one transaction: row · handler · commit ─▶ ack
               worker.py  key_queues.py          handling.py
                                               it failed ─▶ counted in a transaction of its own, tried again later
                                               too often ─▶ dead with its bytes, until a person requeues it
```

`Inbox` is what your code sees: a name, and handlers by type. `InboxWorker` runs one: it receives from a `Consumer` and handles
in an `InboxStore`.
"""

from postroom.inbox.errors import ErrorClass, RejectMessage, RetryLater
from postroom.inbox.guards import BusinessKey, RedisGuard
from postroom.inbox.inbox import Inbox
from postroom.inbox.worker import InboxWorker
from postroom.message import KeyedMessage

__all__ = [
    "BusinessKey",
    "ErrorClass",
    "Inbox",
    "InboxWorker",
    "KeyedMessage",
    "RedisGuard",
    "RejectMessage",
    "RetryLater",
]
