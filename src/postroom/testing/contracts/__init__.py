"""One suite per contract. A store or a transport brings only how to open itself, and what it declares."""

from postroom.testing.contracts.claiming import ClaimingContract
from postroom.testing.contracts.consumer import ConsumerContract
from postroom.testing.contracts.inbox import TransactionsContract
from postroom.testing.contracts.inbox_records import RecordsContract
from postroom.testing.contracts.lanes import LanesContract
from postroom.testing.contracts.operating import OperatingContract
from postroom.testing.contracts.publisher import PublisherContract
from postroom.testing.contracts.schema import SchemaContract
from postroom.testing.contracts.settling import SettlingContract
from postroom.testing.contracts.watch import WatchContract
from postroom.testing.contracts.writing import WritingContract


class StoreContract(
    SchemaContract, WritingContract, LanesContract, ClaimingContract, SettlingContract, WatchContract, OperatingContract
):
    """All that a store must do. Subclass it, provide a `store` fixture (see `StoreCase`), run pytest."""


class InboxContract(TransactionsContract, RecordsContract):
    """All that an inbox must do. Subclass it, provide the fixture `desk` (see `Desk`), run pytest."""


__all__ = [
    "ClaimingContract",
    "ConsumerContract",
    "InboxContract",
    "LanesContract",
    "OperatingContract",
    "PublisherContract",
    "RecordsContract",
    "SchemaContract",
    "SettlingContract",
    "StoreContract",
    "TransactionsContract",
    "WatchContract",
    "WritingContract",
]
