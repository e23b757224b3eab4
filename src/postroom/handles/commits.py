"""What a commit of SQLAlchemy's must know: whether a `put` that was called is still to be awaited, and whom to tell of it.

A forgotten `await` writes nothing, and all that Python has to say is a warning when the coroutine is collected. So an async
handle notes each call in the transaction that it was made in, and the commit of that transaction is refused until every
one of them was awaited. A rollback needs no care: the note goes with its transaction.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from postroom.errors import NotAwaited, NotInTransaction
from postroom.handles import nearby

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import RootTransaction
    from sqlalchemy.orm import Session, SessionTransaction

    Outermost: TypeAlias = RootTransaction | SessionTransaction

_owed: WeakKeyDictionary[Outermost, int] = WeakKeyDictionary()
"""How many calls of each transaction nobody has awaited yet."""
_news: WeakSet[Outermost] = WeakSet()
"""Transactions with a message in them, of whose commit a relay in this process is to hear."""
_watched: WeakSet[Connection] = WeakSet()


class Owed:
    """One call of `put`: noted when it is made, until `paid`."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Outermost) -> None:
        self._transaction = transaction
        _owed[transaction] = _owed.get(transaction, 0) + 1

    def paid(self, now: Outermost | None) -> None:
        """It is awaited, in this transaction: raises NotInTransaction where that is another one than it was called in."""
        left = _owed.get(self._transaction, 0) - 1
        if left > 0:
            _owed[self._transaction] = left
        else:
            _owed.pop(self._transaction, None)
        if now is not self._transaction:
            raise NotInTransaction(
                "This put was called in a SQLAlchemy transaction that has already ended, so the message would not commit with "
                "your data: await each put before its transaction ends."
            )


def owed_by_session(session: Session) -> Owed:
    """Note a call in the session's transaction, which begins here if it has not, as at any other work of a session."""
    _watch_sessions()
    transaction = session.get_transaction()
    if transaction is None:
        session.begin()
        transaction = session.get_transaction()
        assert transaction is not None  # noqa: S101 - it was just begun
    return Owed(transaction)


def owed_by_connection(connection: Connection) -> Owed:
    """Note a call in the connection's transaction, of which `check` has made sure."""
    _watch_connection(connection)
    transaction: Any = connection.get_transaction()
    return Owed(transaction)


def news_of_session(session: Session) -> None:
    """A message was written: tell the relays of this process, if there are any, when the session has committed."""
    if nearby.is_anyone():
        _watch_sessions()
        _news_of(session.get_transaction())


def news_of_connection(connection: Connection) -> None:
    """The same for a connection."""
    if nearby.is_anyone():
        _watch_connection(connection)
        _news_of(connection.get_transaction())


def _news_of(transaction: Outermost | None) -> None:
    if transaction is not None:
        _news.add(transaction)


@cache
def _watch_sessions() -> None:
    """Once for all sessions of the process: a listener on each of them would cost more than the put."""
    from sqlalchemy import event
    from sqlalchemy.orm import Session

    event.listen(Session, "before_commit", _before_commit_of_session)
    event.listen(Session, "after_commit", _after_commit_of_session)


def _watch_connection(connection: Connection) -> None:
    from sqlalchemy import event

    if connection not in _watched:
        event.listen(connection, "commit", _before_commit_of_connection)
        _watched.add(connection)


def _before_commit_of_session(session: Session) -> None:
    _refuse_if_owed(session.get_transaction(), "AsyncSession")


def _after_commit_of_session(session: Session) -> None:
    # It is called at the end of each savepoint as well.
    if session.get_transaction() in _news and not session.in_nested_transaction():
        nearby.tell()


def _before_commit_of_connection(connection: Connection) -> None:
    transaction = connection.get_transaction()
    _refuse_if_owed(transaction, "AsyncConnection")
    if transaction in _news:
        # A connection has no event after its commit. A relay that was just told looks again and again for a while.
        nearby.tell()


def _refuse_if_owed(transaction: Outermost | None, kind: str) -> None:
    if transaction is None or not (count := _owed.get(transaction, 0)):
        return
    calls = "A put was" if count == 1 else f"{count:,} puts were"
    raise NotAwaited(
        f"{calls} called on this {kind} and never awaited, so the message is not written, and nothing is committed: write "
        "`await outbox.put(…)`, and roll this transaction back."
    )
