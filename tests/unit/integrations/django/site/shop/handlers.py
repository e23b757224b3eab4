"""What a relay calls, and what an inbox handles."""

from contextlib import suppress

from django.db import IntegrityError

from postroom import Inbox, Message
from postroom.inbox import RejectMessage
from postroom.integrations.django import fresh_connections, put
from shop.models import Order

inbox = Inbox("shop")


@fresh_connections
def take(message: Message) -> None:
    """A function instead of a broker."""
    Order.objects.create(name=f"local {message.key}")


@inbox.on("order.placed")
def placed(message, tx):
    Order.objects.create(name=f"inbox {message.key}")
    put(Message("order.confirmed", key=message.key))
    if message.data == "refuse":
        raise RejectMessage("no")


@inbox.on("order.swallowed")
def swallowed(message, tx):
    Order.objects.create(name="twice")
    with suppress(IntegrityError):
        Order.objects.create(name="twice")
