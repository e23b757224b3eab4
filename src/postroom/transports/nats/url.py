"""What a NATS URL says: `nats://user:password@host:4222/STREAM?subject=orders.paid`. Pure."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import unquote

from postroom.durations import parse_duration
from postroom.errors import ConfigError
from postroom.urls import PORT_MAX, redact, split_scheme

EXAMPLE = "nats://broker:4222/ORDERS?subject=orders.paid"
PORT = 4222
ACK_WAIT = timedelta(seconds=15)
ACK_WAIT_LEAST = timedelta(seconds=1)
PARAMETERS = ("subject", "ack_wait", "sync", "tls_ca", "tls_cert", "tls_key")

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::([0-9]{1,5}))?", re.ASCII)
_NAME = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,255}")
_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
SUBJECT_MAX = 1_000
"""In bytes. A line of NATS' protocol holds 4,096, and a server that is sent a longer one ends the connection."""


@dataclass(frozen=True, slots=True)
class NatsUrl:
    """A URL, read and found well-formed."""

    shown: str
    """Servers and stream, for people."""
    servers: tuple[str, ...]
    stream: str
    subject: str | None
    """Where a message goes that names none; what a receiver reads, wildcards allowed."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    must_encrypt: bool = False
    ack_wait: timedelta = ACK_WAIT
    """So long after a receiver's last sign of life the server gives what it had in hand to others."""
    is_synced: bool = False
    """The operator says that the server writes to the disk before it confirms: NATS tells nobody."""
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def tls(self) -> ssl.SSLContext | None:
        """The certificates to trust and to show; None: no TLS is asked for. ConfigError for a file that is not one."""
        if not self.must_encrypt:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as exc:
            raise ConfigError(f"The TLS files of {self.shown} cannot be used: {exc}; correct the URL.") from exc
        return context


def read(url: str) -> NatsUrl:
    """The settings in a URL, or ConfigError."""
    scheme, rest = split_scheme(url)
    where, _, query = rest.partition("?")
    authority, _, stream = where.partition("/")
    user, at, hosts = authority.rpartition("@")
    name, colon, password = user.partition(":")
    stream = unquote(stream)
    if "#" in url or not hosts or not _NAME.fullmatch(stream):
        raise ConfigError(f"{redact(url)} names no NATS server and stream; give them like {EXAMPLE}.")
    servers = tuple(_server(host, url) for host in hosts.split(","))
    chosen = _parameters(query, url)
    if scheme != "tls" and (vain := [each for each in chosen if each.startswith("tls_")]):
        raise ConfigError(f"{redact(url)} says {' and '.join(vain)} but asks for no TLS; begin it with tls://.")
    if "tls_key" in chosen and "tls_cert" not in chosen:
        raise ConfigError(f"{redact(url)} says tls_key without tls_cert; give both.")
    return NatsUrl(
        shown=f"{scheme}://{hosts}/{stream}",
        servers=servers,
        stream=stream,
        subject=_subject(chosen.get("subject"), url),
        user=unquote(name) if colon else None,
        password=unquote(password) if colon else None,
        token=unquote(name) if at and not colon else None,
        must_encrypt=scheme == "tls",
        ack_wait=_ack_wait(chosen.get("ack_wait")),
        is_synced=_is_synced(chosen.get("sync")),
        tls_ca=chosen.get("tls_ca"),
        tls_cert=chosen.get("tls_cert"),
        tls_key=chosen.get("tls_key"),
    )


def is_subject(subject: str) -> bool:
    """Can a message be published to it?

    >>> is_subject("orders.paid"), is_subject("orders.*"), is_subject("orders..paid")
    (True, False, False)
    """
    return len(subject.encode(errors="replace")) <= SUBJECT_MAX and all(map(_TOKEN.fullmatch, subject.split(".")))


def is_filter(subject: str) -> bool:
    """The same for what is read: here `*` stands for a token, and `>` for all that follow."""
    *most, last = subject.split(".")
    return is_subject(".".join("x" if each == "*" else each for each in [*most, "x" if last == ">" else last]))


def covers(patterns: Iterable[str], subject: str) -> bool:
    """Does one of these patterns of a stream take messages of this subject?

    >>> covers(["orders.*"], "orders.paid"), covers(["orders.>"], "orders"), covers(["orders.>"], "orders.a.b")
    (True, False, True)
    """
    return any(_matches(pattern.split("."), subject.split(".")) for pattern in patterns)


def group_name(group: str) -> str:
    """The group as the name of a durable consumer; ConfigError when it cannot be one."""
    if not _NAME.fullmatch(group):
        raise ConfigError(f"The group {group!r} cannot be a NATS consumer's name: leave out spaces . * > / and \\.")
    return group


def _matches(pattern: list[str], subject: list[str]) -> bool:
    if pattern[-1] == ">":
        pattern, subject = pattern[:-1], subject[: len(pattern) - 1] if len(subject) >= len(pattern) else []
    return len(pattern) == len(subject) and all(p in ("*", s) for p, s in zip(pattern, subject, strict=True))


def _server(text: str, url: str) -> str:
    match = _HOST.fullmatch(text)
    if not match or not 0 < int(match[2] or PORT) <= PORT_MAX:
        raise ConfigError(f"{redact(url)} names no NATS server and stream; give them like {EXAMPLE}.")
    return f"nats://{match[1]}:{match[2] or PORT}"


def _parameters(query: str, url: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        # Not parse_qsl: it reads + as a space.
        name, _, value = part.partition("=")
        name = unquote(name)
        if name not in PARAMETERS:
            raise ConfigError(
                f"{redact(url)} says {name[:40]!r}, which is not a setting; there are {', '.join(PARAMETERS)}."
            )
        if name in chosen or not value:
            raise ConfigError(f"{name} in {redact(url)} must have one value; write {name}=… once.", setting=name)
        chosen[name] = unquote(value)
    return chosen


def _subject(subject: str | None, url: str) -> str | None:
    if subject is not None and not is_filter(subject):
        raise ConfigError(f"{subject[:60]!r} in {redact(url)} is not a NATS subject; write one like orders.paid.")
    return subject


def _ack_wait(text: str | None) -> timedelta:
    wait = ACK_WAIT if text is None else parse_duration(text)
    if wait < ACK_WAIT_LEAST:
        raise ConfigError(f"ack_wait is {text}; give 1s or more, or a live receiver is taken for dead.")
    return wait


def _is_synced(text: str | None) -> bool:
    if text not in (None, "always"):
        raise ConfigError(f"sync is {text!r}; say sync=always when the server is set so, or leave it out.")
    return text is not None
