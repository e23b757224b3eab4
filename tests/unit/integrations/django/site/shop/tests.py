"""What a user of Postroom would write."""

from contextlib import suppress

from django.db import transaction
from django.test import TestCase

from postroom import Message
from postroom.integrations.django import put
from postroom.integrations.django.models import OutboxMessage


class Orders(TestCase):
    def test_an_order_is_told_of(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            put(Message("order.placed", key="order-7", data={"amount": 12}))
        message = OutboxMessage.objects.get(type="order.placed")
        assert (message.key, message.status, message.payload) == ("order-7", "pending", '{"amount":12}')

    def test_one_that_was_rolled_back_is_not(self) -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            put(Message("order.placed"))
            _ = 1 / 0
        assert not OutboxMessage.objects.exists()
