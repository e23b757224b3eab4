"""The shop: an order and the message about it are one commit, and a relay inside the application carries it to Kafka."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from postroom import Message, Outbox
from postroom.integrations.asgi import health_app, relaying

engine = create_async_engine(make_url(os.environ["POSTROOM_STORE"]).set(drivername="postgresql+psycopg"))
sessions = async_sessionmaker(engine, expire_on_commit=False)
outbox = Outbox()
post = (
    relaying()
)  # from POSTROOM_STORE to POSTROOM_TO; POSTROOM_ENABLED=false leaves it to a `postroom relay` elsewhere


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    item: Mapped[str]
    amount: Mapped[int]


class Wish(BaseModel):
    """What a customer sends."""

    item: str
    amount: int = Field(gt=0)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with post:
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
app.mount("/postroom", health_app(post))


@app.post("/orders", status_code=201)
async def place(wish: Wish) -> dict[str, str | int]:
    """Take an order, and tell the world; or neither."""
    order = Order(id=str(uuid4()), item=wish.item, amount=wish.amount)
    async with sessions.begin() as session:
        session.add(order)
        await outbox.put(session, Message("order.placed", key=order.id, data=_shown(order)))
    return _shown(order)


@app.get("/orders/{number}")
async def show(number: str) -> dict[str, str | int]:
    async with sessions() as session:
        order = await session.get(Order, number)
    if order is None:
        raise HTTPException(404, "There is no such order.")
    return _shown(order)


def _shown(order: Order) -> dict[str, str | int]:
    return {"id": order.id, "item": order.item, "amount": order.amount}
