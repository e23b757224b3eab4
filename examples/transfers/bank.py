"""The bank: a transfer and the message about it are one commit. `python bank.py N` makes N transfers."""

import os
import random
import sys

import psycopg

from postroom import Message, Outbox

TABLES = """
CREATE TABLE IF NOT EXISTS transfers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text NOT NULL, amount integer NOT NULL);
CREATE TABLE IF NOT EXISTS suspicions (
    transfer bigint PRIMARY KEY, account text NOT NULL, reason text NOT NULL);
CREATE TABLE IF NOT EXISTS turnover (account text PRIMARY KEY, total bigint NOT NULL);
"""
outbox = Outbox()


def transfer(connection: psycopg.Connection, account: str, amount: int) -> None:
    """Book it, and tell the world; or neither."""
    with connection.transaction():
        (number,) = connection.execute(
            "INSERT INTO transfers (account, amount) VALUES (%s, %s) RETURNING id", [account, amount]
        ).fetchone()
        data = {"transfer": number, "account": account, "amount": amount}
        outbox.put(connection, Message("transfer.booked", key=account, data=data))


def main(number: int) -> None:
    dice = random.Random(7)
    with psycopg.connect(os.environ["POSTROOM_STORE"], autocommit=True) as connection:
        connection.execute(TABLES)
        for _ in range(number):
            transfer(connection, f"account-{dice.randrange(20)}", dice.choice([20, 50, 120, 900, 12_000]))
    print(f"booked {number} transfers")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
