"""The warehouse: it packs each order once, however often the message comes."""

from typing import Any

from postroom import Inbox, Message
from shop.models import Parcel

inbox = Inbox("warehouse")


@inbox.on("order.placed")
def pack(message: Message, tx: Any) -> None:  # noqa: ARG001 - the ORM is in the same transaction by itself
    """The parcel and the row that says that this message was handled are one commit."""
    Parcel.objects.create(order=message.key, item=message.data["item"])
