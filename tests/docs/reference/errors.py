"""errors.md: everything that is raised, and every code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.reference.made import first, page, paragraphs, table

import postroom.codes
from postroom import codes
from postroom.errors import PostroomError

SOURCE = Path(postroom.codes.__file__).parent
SETS = {
    "RELAY": "The relay",
    "REFUSED": "Refused",
    "FAILED": "Failed",
    "BROKER": "The broker is away",
    "INBOX": "The inbox",
}
TELLS = {"Failed", "Rejected", "Unavailable", "Buried", "Retry", "Again", "Lost", "ErrorClass"}
"""What is made with a code."""


def page_of_errors() -> str:
    """The classes, then the codes by who says them."""
    classes = [[f"`{each.__name__}`", _bases(each), _later(each), first(each)] for each in tree(PostroomError)]
    words = _words()
    parts = []
    for name, title in SETS.items():
        found = getattr(codes, name)
        rows = [
            [f"`{code}`", meaning.means, meaning.remedy, ", ".join(told_by(code))] for code, meaning in found.items()
        ]
        parts += [f"### {title}", words[name], table([["code", "what it means", "what to do", "said by"], *rows])]
    heading = ["error", "is a", "may pass by itself", "when"]
    return page("Errors", "## What is raised", table([heading, *classes]), "## Codes", *paragraphs(codes), *parts)


def tree(kind: type[PostroomError]) -> list[type[PostroomError]]:
    """The class and all below it."""
    return [
        kind,
        *(each for below in kind.__subclasses__() if below.__module__ == "postroom.errors" for each in tree(below)),
    ]


def _bases(kind: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in kind.__bases__)


def _later(kind: type[PostroomError]) -> str:
    return "yes" if kind.transient else "no"


def _words() -> dict[str, str]:
    """What is written below each set of codes."""
    found = re.findall(
        r"^(\w+) = \{\n.*?^\}\n\"\"\"(.+?)\"\"\"", (SOURCE / "codes.py").read_text(), re.MULTILINE | re.DOTALL
    )
    return {name: " ".join(text.split()) for name, text in found}


def told_by(code: str) -> list[str]:
    """The parts of Postroom that name this code."""
    return sorted({part for part, names in named().items() if code in names})


@cache
def named() -> dict[str, set[str]]:
    """The texts that look like a code in each part: a transport, the relay, the inbox."""
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        if part := _part(*file.relative_to(SOURCE).parts):
            found.setdefault(part, set()).update(re.findall(r'"([A-Z][A-Z_]+(?:[0-9]{3})?)"', file.read_text()))
    return found


def _part(*place: str) -> str | None:
    """Who speaks in the file at this place; None: nobody who gives codes."""
    match place:
        case ("transports", "__init__.py"):
            return None
        case ("transports", name, *_) if not name.endswith(".py") or name in {"local.py", "null.py"}:
            return name.removesuffix(".py")
        case ("transports", *_):
            return "transports"  # what they share
        case ("relay", *_) | ("retry.py",) | ("contracts", "transport.py"):
            return "relay"
        case ("inbox", *_) | ("contracts", "inbox.py"):
            return "inbox"
    return None


def codes_made() -> set[str]:
    """Every code that is written where an outcome, a verdict or a fault is made."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        if not {"testing", "cli", "demo"} & set(file.relative_to(SOURCE).parts):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TELLS:
                    given = [*node.args[:2], *(each.value for each in node.keywords if each.arg == "code")]
                    texts = [part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Constant)]
                    found |= {
                        text for text in texts if isinstance(text, str) and re.fullmatch(r"[A-Z][A-Z_]*[A-Z]", text)
                    }
    return found
