"""The blocks of code in the pages, and which rule each of them is under.

A block says by its first line what it is: ```` ```python server=kafka ````, the language and then options. `KINDS` has a rule
for each that there may be; a block under none, or under two, fails `test_every_block.py`.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BROKERS = ("kafka", "sqs", "nats", "redis", "amqp")
PROJECTS = ("start", "pytest", "alembic", "django")
"""Pages whose blocks are the files of one project; see `projects.py`."""
BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)(?P=fence)$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A piece of code in a page."""

    page: Path
    line: int
    info: str
    """What stands behind the fence: the language, then options."""
    code: str

    @property
    def language(self) -> str:
        """Its first word; none at all is a language that no rule is for."""
        return self.info.partition(" ")[0]

    @cached_property
    def options(self) -> dict[str, str]:
        """`server=kafka received` as a mapping; a bare word has an empty value."""
        words = (word.partition("=") for word in self.info.split()[1:])
        return {name: value for name, _, value in words}

    def __str__(self) -> str:
        first = next((line for line in self.code.splitlines() if line.strip()), "")
        return f"{self.page.relative_to(ROOT)}:{self.line}: {first[:50]}"


@dataclass(frozen=True)
class Kind:
    """Which blocks a rule is for: their language, the options they must have, those that they may, and where they stand."""

    language: str
    must: str = ""
    may: frozenset[str] = frozenset()
    page: str = ""
    """The only page that may have them; empty for any."""

    def fits(self, block: Block) -> bool:
        """Is the block of this kind? An option that is not known here makes it one of no kind."""
        wanted = {name: value for name, _, value in (word.partition("=") for word in self.must.split())}
        has = wanted.items() <= block.options.items() and not set(block.options) - set(wanted) - self.may
        here = not self.page or block.page == ROOT / self.page
        return block.language == self.language and has and here


FILE, CONTINUED = frozenset({"file"}), frozenset({"continued"})
KINDS = {
    "program": Kind("python", may=FILE),
    **{f"file of {name}": Kind("python", f"project={name}", may=FILE) for name in PROJECTS},
    "lines": Kind("python", "given=session"),
    "inbox": Kind("python", "inbox", may=frozenset({"buries"})),
    "application": Kind("python", "asgi"),
    **{f"application that {does}": Kind("python", f"asgi={does}") for does in ("puts", "relays", "receives")},
    "webhooks": Kind("python", "server=http received"),
    "signature": Kind("py", page="docs/reference/api.md"),
    "console": Kind("console", may=CONTINUED),
    "commands": Kind("sh"),
    **{f"commands of {name}": Kind("sh", f"project={name}") for name in ("start", "alembic", "django")},
    "commands of the help": Kind("sh", "help", page="docs/reference/cli.md"),
    "commands that run": Kind("sh", "run"),
    "commands that run at mongo": Kind("sh", "run server=mongo"),
    "commands at mysql": Kind("sh", "server=mysql"),
    "settings": Kind("toml"),
    "sql": Kind("sql", may=frozenset({"store"})),
    "picture": Kind("text"),
    **{f"{name} of the architecture": Kind("text", name, page="docs/architecture.md") for name in ("tree", "layers")},
    **{f"program at {name}": Kind("python", f"server={name}") for name in ("postgres", "mongo")},
    "job at mongo": Kind("python", "server=mongo cleans"),
    **{f"program at {name}": Kind("python", f"server={name}", may=frozenset({"leaves"})) for name in BROKERS},
    **{f"receiver at {name}": Kind("python", f"server={name} received") for name in ("kafka", "nats")},
    **{f"console at {name}": Kind("console", f"server={name}") for name in BROKERS},
    **{name: Kind(name) for name in ("url", "json", "yaml", "ini", "dockerfile")},
    "toml": Kind("toml", "other"),
}
"""What each is, and what is done with it, stands in the test that names it."""


def blocks_of(page: Path, text: str) -> list[Block]:
    """The blocks of a page, those in lists too."""
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["info"].strip(), textwrap.dedent(match["code"]))
        for match in BLOCK.finditer(text)
    ]


def all_blocks() -> list[Block]:
    """Every block of every page."""
    return [block for page in PAGES for block in blocks_of(page, page.read_text())]


def kinds_of(block: Block) -> list[str]:
    """The rules that it is under: one, if all is well."""
    return [name for name, kind in KINDS.items() if kind.fits(block)]


def all_of(*kinds: str) -> list[Block]:
    """The blocks of these kinds."""
    wanted = {KINDS[name] for name in kinds}
    return [block for block in all_blocks() if any(kind.fits(block) for kind in wanted)]


def each(*kinds: str) -> pytest.MarkDecorator:
    """Runs a test with each block of these kinds."""
    return pytest.mark.parametrize("block", all_of(*kinds), ids=str)
