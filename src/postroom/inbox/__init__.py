"""Receiving: a message's effects happen once, because they commit with the row that says so.

```
   consumer ─▶ Reception ─▶ a line per key ─▶ in one transaction: row · handler · commit ─▶ ack
               reception.py  lines.py          handling.py
                                               it failed ─▶ counted in a transaction of its own, tried again later
                                               too often ─▶ dead with its bytes, until a person requeues it
```

`Inbox` is what your code sees: a name, and handlers by type. `Reception` runs one: it receives from a `Consumer` and handles
in an `InboxStore`.
"""

from postroom.inbox.faults import Fault, Retryable, Unacceptable
from postroom.inbox.guards import BusinessKey, RedisGuard
from postroom.inbox.inbox import Inbox
from postroom.inbox.reception import Reception
from postroom.message import KeyedMessage

__all__ = ["BusinessKey", "Fault", "Inbox", "KeyedMessage", "Reception", "RedisGuard", "Retryable", "Unacceptable"]
