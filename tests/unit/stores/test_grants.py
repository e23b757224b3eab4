"""The rights that `postroom init --grants` prints are enough for each role, and no more than it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from tests.unit.stores.homes import Home, MariaDBHome, PostgresHome

from postroom.config.tables import TableNames
from postroom.contracts.inbox import DeadQuery
from postroom.contracts.ops import Query
from postroom.contracts.outbox import Buried, Retry
from postroom.contracts.store import Store
from postroom.contracts.transport import Delivery, Identity
from postroom.errors import StoreError
from postroom.stores import open_store
from postroom.stores.sql.grants import ROLES, grants
from postroom.testing.contracts._case import NOON, SECOND, a_message, a_relay


class Users:
    """A user for each role, on this server alone."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._mark = uuid4().hex[:8]
        self._at = "@'127.0.0.1'" if home.dialect == "mysql" else ""

    def name(self, role: str) -> str:
        return f"{role.removeprefix('postroom_')}_{self._mark}"

    def create(self) -> None:
        for role in ROLES:
            create = "CREATE USER" if self._home.dialect == "mysql" else "CREATE ROLE"
            self._home.sql(f"{create} {self.name(role)}{self._at}" + ("" if self._at else " LOGIN"))
        for statement in grants("mysql" if self._at else "postgres", TableNames()):
            head, role = statement.rsplit(" ", 1)
            self._home.sql(f"{head} {self.name(role)}{self._at}")

    def drop(self) -> None:
        for role in ROLES:
            if not self._at:
                self._home.sql(f"DROP OWNED BY {self.name(role)}")
            self._home.sql(f"{'DROP USER' if self._at else 'DROP ROLE'} {self.name(role)}{self._at}")

    def url(self, role: str) -> str:
        owner = "postroom@" if self._at else "postgres@"
        assert owner in self._home.url
        return self._home.url.replace(owner, f"{self.name(role)}@", 1)


@pytest.fixture(params=["postgres", "mysql"])
def home(request: pytest.FixtureRequest) -> Home:
    name = "postgres_home" if request.param == "postgres" else "mariadb_home"
    found: PostgresHome | MariaDBHome = request.getfixturevalue(name)
    return found


@pytest.fixture
async def owner(home: Home) -> AsyncIterator[Store]:
    async with home.open() as store:
        await store.schema.migrate()
        yield store


@pytest.fixture
def users(home: Home, owner: Store) -> Iterator[Users]:
    users = Users(home)
    users.create()
    yield users
    users.drop()


async def test_each_role_can_do_its_work_and_no_other(users: Users) -> None:
    message, delivery = a_message(key="a"), Delivery(a_message(key="a"), "shop", "orders")
    async with open_store(users.url("postroom_service")) as service:
        await service.schema.check()
        await service.outbox.put([message, a_message(key="b")])
        with pytest.raises(StoreError, match="grant"):
            await service.ops.find(Query())
        inbox = service.inbox
        async with inbox.transaction() as tx:
            assert await tx.remember("billing", [Identity("shop", message.id)])
        assert await inbox.failed("billing", delivery.identity, "OOPS", "") == 1
        await inbox.bury("billing", delivery, "OOPS", "")
    async with open_store(users.url("postroom_relay")) as store:
        await store.schema.check()
        relay = await a_relay(store)
        await relay.settle(await relay.claim(), Retry(SECOND, "OOPS"))
        await relay.settle(await relay.claim(now=NOON + SECOND), Buried("OOPS"))
        assert await store.lanes.release("relay-a", relay.lanes)
        with pytest.raises(StoreError, match="grant"):
            await store.outbox.put([a_message()])
    async with open_store(users.url("postroom_operator")) as store:
        await store.schema.check()
        assert await store.ops.requeue(Query(ids=[message.id])) == 1
        assert await store.ops.discard(Query(status="dead")) == 1
        assert sorted((await store.ops.counts()).by_status.items()) == [("discarded", 1), ("pending", 1)]
        with pytest.raises(StoreError, match="grant"):
            await store.outbox.put([a_message()])
        assert await store.inbox.requeue(DeadQuery(consumer="billing")) == 1
        assert await store.inbox.counts()
