"""For your tests, as a plugin of pytest: the fixture `postroom_outbox`. What it needs is imported when a test asks for it.

```python
def test_a_paid_order_is_told(connection, postroom_outbox):
    pay(connection, "order-7")
    postroom_outbox(connection).assert_put("order.paid", key="order-7", data={"amount": 12})
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from postroom.testing.outbox import SeenOutbox


@pytest.fixture
def postroom_store() -> Any:
    """Override it: return the connection or session that your test holds, or the URL of a store.

    It has no default on purpose: a test must not find by itself what POSTROOM_STORE names."""
    return None


@pytest.fixture
def postroom_outbox(postroom_store: Any) -> Iterator[SeenOutbox]:
    """What was put into the outbox of `postroom_store`, and relaying it now; `postroom_outbox(connection)` looks elsewhere."""
    from postroom.testing.outbox import Later, SeenOutbox

    pending: list[Later] = []
    yield SeenOutbox(postroom_store, pending=pending)
    for each in pending:
        each.forget()
    if pending:
        names = ", ".join(dict.fromkeys(each.name for each in pending))
        pytest.fail(
            f"postroom_outbox: {names} was not awaited, so it did nothing: write `await` before it.", pytrace=False
        )
