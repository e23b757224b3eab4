"""`postroom put`: one message, or many in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import click

from postroom.cli.inputs import Lines, opened, read_bytes, read_json
from postroom.cli.options import after_now, store_options
from postroom.cli.output import write, write_json
from postroom.cli.progress import Meter
from postroom.cli.session import Session
from postroom.clock import utcnow
from postroom.message import UNSET, Message
from postroom.outbox.outbox import Outbox
from postroom.stores import open_waker
from postroom.validation import check

CHUNK = 1000
"""How many messages are handed to the database at once."""


@click.command(short_help="Write one message, or many.")
@store_options
@click.argument("type", required=False)
@click.option("--key", help="The ordering key: messages with the same one are delivered in the order written.")
@click.option("--data", metavar="JSON|@FILE|-", help="The data, as a JSON value; @FILE reads a file, - reads stdin.")
@click.option("--body", metavar="TEXT|@FILE|-", help="The body, byte for byte, instead of --data.")
@click.option("--content-type", metavar="TYPE", help="The type of the body, such as text/plain. Default: JSON.")
@click.option("--id", metavar="UUID", help="The message's id. Default: a new UUIDv7.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header. May be given repeatedly.")
@click.option("--topic", help="Where it goes. Default: the relay's route decides.")
@click.option("--aggregate", help="The kind of thing that the key names, such as order.")
@click.option(
    "--not-before", callback=after_now, metavar="TIME", help="Earliest time to send it: RFC 3339, or 10m from now."
)
@click.option(
    "--expires", "expires_at", callback=after_now, metavar="TIME", help="Latest time to send it: RFC 3339, or 7d."
)
@click.option("--correlation-id", metavar="ID", help="What the message belongs to, such as a request.")
@click.option("--causation-id", metavar="ID", help="The message that caused it.")
@click.option("--idempotency-key", metavar="KEY", help="A name for the effect, unique in the outbox.")
@click.option("--jsonl", metavar="FILE|-", help="Write many: a JSON object a line, all in one transaction.")
@click.option("--json", "as_json", is_flag=True, help="Print an object with id, type and key per message.")
def put(session: Session, jsonl: str | None, as_json: bool, **given: Any) -> None:
    """Write one message of TYPE, and print its id; or many with --jsonl, and print how many. All are checked before
    the first is written; of many, all are written or none.

    \b
    Examples:
      postroom put order.paid --key order-7 --data '{"amount": 12}'
      postroom put invoice.made --data @invoice.json --header tenant=acme
      postroom put cart.left --key cart-3 --not-before 30m --expires 7d
      postroom put label.made --body @label.pdf --content-type application/pdf
      generate | postroom put --jsonl -

    \b
    A line of --jsonl, of which only type is needed:
      {"type": "order.paid", "key": "order-7", "data": {"amount": 12}}
    It may also have id, topic, headers, aggregate, not_before, expires_at,
    correlation_id, causation_id, idempotency_key and content_type.
    """
    if jsonl is None:
        _put_one(session, _message(given), as_json=as_json)
        return
    if names := [name for name, value in given.items() if value not in (None, ())]:
        raise click.UsageError(f"--jsonl brings whole messages; leave out {', '.join(map(_spelled, names))}.")
    _put_many(session, jsonl, as_json=as_json)


def _message(given: dict[str, Any]) -> Message:
    if given["type"] is None:
        raise click.UsageError("Say what happened, as in `postroom put order.paid`, or give --jsonl FILE.")
    data, body = given.pop("data"), given.pop("body")
    if body is not None and data is not None:
        raise click.UsageError("--data and --body are both given; keep one of them.")
    if body is not None and given["content_type"] is None:
        raise click.UsageError("--body needs --content-type, such as --content-type text/plain.")
    return Message(
        **{**given, "headers": _headers(given["headers"])},
        data=UNSET if data is None else read_json(data, "--data"),
        body=None if body is None else read_bytes(body, "--body"),
    )


def _headers(pairs: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} has no =; write it like tenant=acme.", param_hint="--header")
        if name in headers:
            raise click.BadParameter(f"{name!r} is given twice; keep one of them.", param_hint="--header")
        headers[name] = value
    return headers


def _spelled(name: str) -> str:
    names = {"type": "TYPE", "headers": "--header", "expires_at": "--expires"}
    return names.get(name, f"--{name.replace('_', '-')}")


def _put_one(session: Session, message: Message, *, as_json: bool) -> None:
    check(message, session.settings.limits)
    asyncio.run(_write(session, [message]))
    if as_json:
        _write_receipt(message)
    else:
        write(str(message.id))


def _put_many(session: Session, source: str, *, as_json: bool) -> None:
    # Read to the end before the transaction begins: a slow writer at the other end of a pipe must not hold it open.
    with opened(source, "--jsonl") as file, Meter("reading") as meter:
        name = "stdin" if source == "-" else source
        lines = Lines(file, name=name, now=utcnow(), limits=session.settings.limits)
        messages = list(meter.counted(lines))
    asyncio.run(_write(session, messages))
    if as_json:
        for message in messages:
            _write_receipt(message)
    else:
        write(f"put {len(messages):,} message{'' if len(messages) == 1 else 's'}")


async def _write(session: Session, messages: Sequence[Message]) -> None:
    outbox = Outbox(tables=session.settings.tables, limits=session.settings.limits)
    async with session.store() as store, store.outbox.transaction() as transaction:
        with Meter("writing") as meter:
            for chunk in meter.counted(_chunks(messages), by=len):
                await outbox.put_many(transaction, chunk)
    with open_waker(session.url, tables=session.settings.tables) as waker:
        waker.wake()


def _chunks(messages: Sequence[Message]) -> Iterable[Sequence[Message]]:
    return (messages[at : at + CHUNK] for at in range(0, len(messages), CHUNK))


def _write_receipt(message: Message) -> None:
    write_json({"id": str(message.id), "type": message.type, "key": message.key})
