"""The words of this package: a source finds a server, or says in one sentence why it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Server(Protocol):
    """A server that answers now, at `url`, for every process of this test run."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def source(self) -> str:
        """Where it came from: the key of the source, as in `SOURCES`."""
        ...

    @property
    def ours(self) -> bool:
        """True when this run started it, and so knows its settings; False for a server that was there."""
        ...

    def stop(self) -> None:
        """End it for all processes of the run. A server that we did not start is left alone."""
        ...


@dataclass(frozen=True)
class Found:
    """What a source gives back: a server that has answered at least once."""

    url: str
    version: str


@dataclass(frozen=True)
class Place:
    """Where a source may work: a private directory, the run's ownership file, and the other servers."""

    directory: Path
    owner: Path
    need: Callable[[str], Server]


class Source(Protocol):
    """One way to get a server: it returns one that answers, or raises `NotHere`."""

    def __call__(self, place: Place, /) -> Found: ...


class NotHere(Exception):
    """Raised by a source that cannot give its server; the text is the one-sentence reason."""


class Unavailable(Exception):
    """No source can give the server `name`; `reasons` says why, source by source, in the order tried."""

    def __init__(self, name: str, reasons: Mapping[str, str]) -> None:
        self.name = name
        self.reasons = dict(reasons)
        super().__init__(f"{name} cannot be had here. " + " ".join(f"[{k}] {v}" for k, v in reasons.items()))
