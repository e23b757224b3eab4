"""One suite per contract. A store or a transport brings only how to open itself, and what it declares."""

from postroom.testing.contracts.consumer import ConsumerContract
from postroom.testing.contracts.flow import FlowContract
from postroom.testing.contracts.inbox import InboxContract
from postroom.testing.contracts.lanes import LanesContract
from postroom.testing.contracts.operating import OperatingContract
from postroom.testing.contracts.publisher import PublisherContract
from postroom.testing.contracts.schema import SchemaContract
from postroom.testing.contracts.texts import TextsContract
from postroom.testing.contracts.watch import WatchContract
from postroom.testing.contracts.writing import WritingContract


class StoreContract(
    SchemaContract, WritingContract, LanesContract, FlowContract, TextsContract, WatchContract, OperatingContract
):
    """All that a store must do. Subclass it, provide a `store` fixture (see `StoreCase`), run pytest."""


__all__ = [
    "ConsumerContract",
    "FlowContract",
    "InboxContract",
    "LanesContract",
    "OperatingContract",
    "PublisherContract",
    "SchemaContract",
    "StoreContract",
    "TextsContract",
    "WatchContract",
    "WritingContract",
]
