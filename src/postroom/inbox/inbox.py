"""The inbox as your code sees it: a name, and handlers by type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from postroom.config.values import INBOX_RETENTION_DEFAULT
from postroom.errors import ConfigError
from postroom.inbox.decoding import Reader, readers_for
from postroom.inbox.errors import Mapped
from postroom.inbox.guards import Guard, Table
from postroom.retry import RetryPolicy

Function = TypeVar("Function", bound=Callable[..., Any])
NAME_MAX = 255
REPLAY_WINDOW_DEFAULT = timedelta(days=7)
BATCH_MAX = 10_000
TYPES_MAX = 1_000
"""How many types are remembered: a sender may put a number into every type."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of yours, and what it takes."""

    pattern: str
    function: Callable[..., Any]
    is_async: bool
    batch: int | None
    """How many messages it takes at once, at most; None: one, by itself."""
    read: Reader
    message: Reader | None = None
    """How to make the third argument, the message; None: it takes two."""


@dataclass(kw_only=True)
class Inbox:
    """Handles each message once: its effects and the row that says so are one commit.

    ```python
    inbox = Inbox("billing")

    @inbox.on("order.paid")
    def charge(message, tx):
        tx.execute("INSERT INTO charges (order_id) VALUES (?)", [message.key])
    ```

    `tx` is the database driver's own connection (PyMongo's session), inside a transaction that is the inbox's: write with it,
    put further messages with it, and neither commit nor roll back. A sync handler runs in a thread. When it raises, nothing
    of it is kept; the failure is counted, and it is tried again by `retry`, until the message is dead.
    """

    name: str = field(kw_only=False)
    """The consumer's name. Each message is handled once per name; keep the name over restarts."""
    retry: RetryPolicy = RetryPolicy.WORKER
    errors: Mapped = field(default_factory=dict)
    """Your own classes of errors: which ones are tried again, and under which code."""
    guard: Guard = field(default_factory=Table)
    """How a repeated message is recognised. Default: the inbox's own table."""
    unhandled: Literal["skip", "bury"] = "skip"
    """What becomes of a message that no handler takes: "skip" acknowledges it, "bury" makes it dead."""
    retention: timedelta = INBOX_RETENTION_DEFAULT
    """How long the inbox remembers what it handled."""
    replay_window: timedelta = REPLAY_WINDOW_DEFAULT
    """How old a message may be when it is sent again: the outbox's retention, and the broker's."""
    timeout: timedelta | None = None
    """How long an async handler may run: longer is a failed try, HANDLER_TIMEOUT. A sync one cannot be interrupted: it is
    only told of, and counts as it ends. None: as long as it likes."""
    handlers: list[Handler] = field(default_factory=list, init=False)
    _known: dict[str, Handler | None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > NAME_MAX:
            raise ConfigError(f"An inbox is called {self.name!r}; give it a name of 1 to {NAME_MAX} characters.")
        if self.retention < self.replay_window:
            raise ConfigError(
                f"The inbox {self.name} forgets after {self.retention}, but messages may be sent again for "
                f"{self.replay_window}: make its retention at least that long, or it would handle them twice."
            )
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise ConfigError(f"The inbox {self.name} has a timeout of {self.timeout}; give it some time, or None.")
        self.guard.check(self.replay_window)

    def on(self, pattern: str, *, batch: int | None = None) -> Callable[[Function], Function]:
        """Handle messages of these types with the function below: `order.paid`, `order.*`, `*`. The first that fits counts.

        The function takes `(message, tx)`; or `(data, tx, message)`, where its first argument is annotated with a type of
        yours and it needs the message's key or id too. With `batch=500` it gets lists of up to so many at once, handled in
        one transaction; when it raises, they are handled one by one."""
        if not pattern:
            raise ConfigError("on() needs a type of message, such as order.paid or order.*.")
        if batch is not None and not 1 <= batch <= BATCH_MAX:
            raise ConfigError(f"A batch of {batch} messages cannot be handled; it must be between 1 and {BATCH_MAX:,}.")

        def register(function: Function) -> Function:
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
                getattr(function, "__call__", None)  # noqa: B004 - an object whose call is async
            )
            read, message = readers_for(function, batch=batch is not None)
            self._known.clear()
            self.handlers.append(Handler(pattern, function, is_async, batch, read, message))
            return function

        return register

    def handler_for(self, type_: str) -> Handler | None:
        """Return the first handler that takes this type."""
        try:
            return self._known[type_]
        except KeyError:
            if len(self._known) >= TYPES_MAX:
                self._known.clear()
            found = next((handler for handler in self.handlers if fnmatchcase(type_, handler.pattern)), None)
            return self._known.setdefault(type_, found)

    @property
    def types(self) -> Sequence[str]:
        """The patterns it handles."""
        return [handler.pattern for handler in self.handlers]
