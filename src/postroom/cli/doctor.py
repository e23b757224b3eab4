"""`postroom doctor`: what here weakens a promise, and what to do about it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click

from postroom.cli.options import store_options
from postroom.cli.output import printable, write, write_json
from postroom.cli.session import Session
from postroom.ops.doctor import Finding, examine_broker, examine_store
from postroom.ops.words import count
from postroom.transports import known_scheme

FOUND = 1
"""The exit code when something was found."""


@click.command(short_help="Say what here weakens a promise, with the remedy.")
@store_options
@click.option(
    "--to", "targets", multiple=True, metavar="URL", help="A broker that is sent to. Default: those of the settings."
)
@click.option("--from", "sources", multiple=True, metavar="URL", help="A broker that is received from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each thing that was asked.")
def doctor(session: Session, targets: tuple[str, ...], sources: tuple[str, ...], as_json: bool) -> None:
    """Ask the store, and each broker, for what weakens a promise: tables that are missing, messages that wait while no relay
    lives, dead and parked ones, settings by which a confirmed message can still be lost. It changes nothing. Exit code 0:
    nothing was found; 1: something was.

    \b
    Examples:
      postroom doctor --store sqlite:///shop.db
      postroom doctor --to nats://broker:4222/ORDERS
      postroom doctor --from sqs://eu-central-1/orders.fifo
      postroom doctor --json | jq -r '.findings[]'
    """
    session.brokers += [*targets, *sources]
    for url in session.brokers:
        known_scheme(url)
    findings = asyncio.run(_examine(session, targets or _configured(session), sources))
    (_write_json if as_json else _show)(session, findings)
    if any(finding.found for finding in findings):
        sys.exit(FOUND)


def _configured(session: Session) -> Sequence[str]:
    """Where the settings say that messages go, each once."""
    urls = (session.settings.to, *(route.to for route in session.settings.routes))
    return list(dict.fromkeys(url for url in urls if url))


async def _examine(session: Session, targets: Sequence[str], sources: Sequence[str]) -> list[Finding]:
    return [
        await examine_store(session.url, session.store()),
        *[await examine_broker("to", url) for url in targets],
        *[await examine_broker("from", url) for url in sources],
    ]


def _write_json(session: Session, findings: Sequence[Finding]) -> None:
    for each in findings:
        found = [session.scrub(sentence) for sentence in each.found]
        write_json({"role": each.role, "url": each.url, "asked": each.asked, "findings": found})


def _show(session: Session, findings: Sequence[Finding]) -> None:
    for each in findings:
        write(f"{each.role} {printable(each.url)}")
        for sentence in each.found:
            write(f"  - {printable(session.scrub(sentence))}")
        if not each.found:
            write("  fine" if each.asked else "  nothing is known to be asked of it")
    total = sum(len(each.found) for each in findings)
    write(f"{count(total, 'finding')}" if total else "nothing was found")
