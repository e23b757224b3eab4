"""Everything Postroom raises, in one tree.

```
PostroomError
├── ConfigError (ValueError)          a setting or a URL is wrong
├── MissingDependency (ImportError)   a driver is not installed; says which extra to install
├── InvalidMessage (ValueError)       a message breaks a limit; nothing was written
├── NotInTransaction                  put was given a handle that would commit by itself
├── NotAwaited                        put was called on an async handle, and not awaited before the commit
├── UnknownHandle (TypeError)         put was given something that is not a database handle
├── StoreError
│   ├── StoreUnavailable              the database is away, or refuses us           (transient)
│   ├── SchemaMismatch                the tables are missing, too old or too new
│   └── DuplicateMessage              a message with this id or idempotency key is already there
└── TransportError
    ├── TransportUnavailable          the broker is away                            (transient)
    └── TransportRefused (ConfigError) the broker is there: our password, or what the URL names, is not
```

A message says what happened, to which thing, and what to do. Expected outcomes of a relay's work (sent, rejected, lease lost)
are values, not errors: see `postroom.contracts.transport` and `postroom.contracts.outbox`.
"""

from __future__ import annotations

from typing import Any


class PostroomError(Exception):
    """The root: catch this to catch everything Postroom raises on purpose."""

    transient = False
    """Whether the same call may succeed later, without a change by a person."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts
        """What the sentence is about, for programs: names and values, never a password."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), str(self), self.facts))


def _rebuild(kind: type[PostroomError], message: str, facts: dict[str, Any]) -> PostroomError:
    return kind(message, **facts)


class ConfigError(PostroomError, ValueError):
    """A setting or a URL is wrong: names it, its value and what is allowed."""


class MissingDependency(PostroomError, ImportError):
    """A driver is not installed: says which extra brings it."""


class InvalidMessage(PostroomError, ValueError):
    """A message breaks a limit or is not a JSON value: nothing was written."""


class NotInTransaction(PostroomError):
    """The handle is not in a transaction: what `put` writes would commit by itself."""


class NotAwaited(PostroomError):
    """A `put` on an async session was not awaited before the commit: nothing was committed."""


class UnknownHandle(PostroomError, TypeError):
    """The thing given to `put` is not a database handle that Postroom knows."""


class StoreError(PostroomError):
    """Something about the database."""


class StoreUnavailable(StoreError):
    """The database is away, refuses us, or broke the connection."""

    transient = True


class SchemaMismatch(StoreError):
    """The tables are missing, older or newer than this Postroom: says the command to type."""


class DuplicateMessage(StoreError):
    """A message with this id, or this idempotency key, is already in the outbox."""


class TransportError(PostroomError):
    """Something about the broker."""


class TransportUnavailable(TransportError):
    """The broker is away, or broke the connection."""

    transient = True


class TransportRefused(TransportError, ConfigError):
    """What the URL says does not fit the broker: it knows no such user, password, vhost, stream, topic or queue, or there is
    no host of that name. Waiting does not help: fix the URL, or the broker."""
