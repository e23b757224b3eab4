"""What an `sqs://` URL says: region, account, queue; and where, if not at AWS itself. Never who we are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from postroom.errors import ConfigError
from postroom.urls import redact, split_scheme

EXAMPLE = "sqs://eu-central-1/orders.fifo"
FIFO = ".fifo"
PARAMETERS = ("endpoint", "profile")

_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+")
_ACCOUNT = re.compile(r"\d{12}")
_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


@dataclass(frozen=True, slots=True)
class SqsUrl:
    """A URL, read."""

    shown: str
    """The URL, for people."""
    region: str
    account: str | None
    """Whose queues they are; None: those of the credentials' account."""
    queue: str | None
    endpoint: str | None
    """Where SQS is, if it is not AWS's own."""
    profile: str | None
    """The part of AWS's configuration files to use."""


def read(url: str) -> SqsUrl:
    """The address in a URL, or ConfigError."""
    where, _, query = split_scheme(url)[1].partition("?")
    region, _, path = where.partition("/")
    if "@" in region:
        raise ConfigError(
            f"{redact(url)} has a user in it; leave it out: credentials come from AWS's own chain, such as "
            "AWS_ACCESS_KEY_ID, a profile or a role."
        )
    if not _REGION.fullmatch(region) or "#" in url:
        raise ConfigError(f"{redact(url)} names no AWS region; give a URL like {EXAMPLE}.")
    account, queue = _owner_and_queue(path, url)
    chosen = _parameters(query, url)
    endpoint = chosen.get("endpoint")
    if endpoint is not None and not re.fullmatch(r"https?://[^/@?#\s]+/?", endpoint):
        raise ConfigError(
            f"The endpoint in {redact(url)} is not the address of an SQS service; give one like endpoint=http://127.0.0.1:5000."
        )
    return SqsUrl(redact(url), region, account, queue, endpoint, chosen.get("profile"))


def is_queue_name(name: str) -> bool:
    """May a queue be called so?"""
    return _QUEUE.fullmatch(name) is not None


def is_fifo(name: str) -> bool:
    """Does this queue keep the order of its groups? At SQS its name says so."""
    return name.endswith(FIFO)


def _owner_and_queue(path: str, url: str) -> tuple[str | None, str | None]:
    *owner, queue = path.split("/")
    account = owner[0] if owner else None
    if len(owner) > 1 or (account is not None and not _ACCOUNT.fullmatch(account)):
        raise ConfigError(
            f"{redact(url)} names no account before its queue; an account has 12 digits: sqs://eu-central-1/123456789012/orders."
        )
    if queue and not is_queue_name(queue):
        raise ConfigError(
            f"{queue!r} in {redact(url)} is not a queue name: at most 80 letters, digits, - and _; FIFO queues end with .fifo."
        )
    return account, queue or None


def _parameters(query: str, url: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in PARAMETERS or not value:
            raise ConfigError(
                f"{name!r} in {redact(url)} says nothing to SQS; there are {' and '.join(PARAMETERS)}, each with a value."
            )
        if name in chosen:
            raise ConfigError(f"{name} is given twice in {redact(url)}; keep one of them.")
        chosen[name] = unquote(value)
    return chosen
