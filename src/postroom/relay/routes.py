"""Where a message goes: by its type, the first route that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from postroom.contracts.transport import Publisher
from postroom.retry import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Messages whose type fits the pattern go to this publisher."""

    to: Publisher
    pattern: str | tuple[str, ...] = "*"
    """`order.*` fits order.paid; `*` fits all. Of several, one must fit."""
    topic: str | None = None
    """Where at the broker; None: the message's own topic, or the transport's default."""
    retry: RetryPolicy = field(default=RetryPolicy.WORKER)
    park: bool = True
    """After a death, does the key wait for a person? Else later messages pass it by."""
    name: str = "default"

    def fits(self, type_: str) -> bool:
        """Does it take messages of this type?"""
        patterns = (self.pattern,) if isinstance(self.pattern, str) else self.pattern
        return any(fnmatchcase(type_, pattern) for pattern in patterns)


class Routes:
    """The routes of a relay, in order. A type is looked up once."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = tuple(routes)
        self._known: dict[str, Route | None] = {}

    def __len__(self) -> int:
        return len(self._routes)

    def route(self, type_: str) -> Route | None:
        """The first route whose pattern fits this type."""
        try:
            return self._known[type_]
        except KeyError:
            fitting = (route for route in self._routes if route.fits(type_))
            return self._known.setdefault(type_, next(fitting, None))

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    @property
    def first(self) -> Route:
        """The rule of the first route stands for messages that no relay could judge."""
        return self._routes[0]
