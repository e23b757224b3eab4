"""What the log says of a message that failed: its error's code, and whether it is a business error."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.inbox.shops import QUICK, Shop, an_inbox, paid

from postroom.inbox import ErrorClass, RejectMessage
from postroom.message import Message

pytestmark = pytest.mark.anyio


class OutOfStock(Exception):
    """The rules of the shop are against it, today."""


async def test_a_rejected_message_is_a_business_error(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    inbox = an_inbox()

    @inbox.on("*")
    async def charge(message: Message, tx: Any) -> None:
        raise RejectMessage("a negative amount", code="NEGATIVE")

    shop.send(paid(1))
    await shop.receive(inbox)
    (told,) = [record for record in caplog.records if "is dead" in record.message]
    assert "is dead: NEGATIVE (business): RejectMessage: a negative amount" in told.message
    assert (vars(told)["code"], vars(told)["business"]) == ("NEGATIVE", True)


@pytest.mark.parametrize(
    ("error", "said", "business"),
    [
        (OutOfStock("no tea"), "OUT_OF_STOCK (business): OutOfStock: no tea", True),
        (OSError("the bank is closed"), "HANDLER_ERROR: OSError: the bank is closed", False),
    ],
)
async def test_a_failed_try_and_the_death_after_it_say_of_which_kind_they_are(
    shop: Shop, caplog: pytest.LogCaptureFixture, error: Exception, said: str, business: bool
) -> None:
    inbox = an_inbox(errors={OutOfStock: ErrorClass(code="OUT_OF_STOCK", business=True)})

    @inbox.on("*")
    async def charge(message: Message, tx: Any) -> None:
        raise error

    shop.send(paid(1))
    await shop.receive(inbox)
    told = [record for record in caplog.records if record.name == "postroom.inbox"]
    assert said in told[0].message
    assert "is dead: MAX_ATTEMPTS" in told[-1].message
    assert {vars(record)["business"] for record in told} == {business}
    assert [bool(record.exc_info) for record in told] == [True, *[False] * (len(told) - 1)], "one traceback is enough"
    assert len(told) == QUICK.max_attempts
