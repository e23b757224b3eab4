"""A method of a store's part, run inside a transaction that the test holds."""

from __future__ import annotations

from typing import Any


def inside(method: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what the method answers on this connection, without the transaction of its own that `in_transaction` gives it."""
    return method.__func__.__wrapped__(method.__self__, connection, *args, **kwargs)
