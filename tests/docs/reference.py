"""Pages that are made from the code: `python -m tests.docs.reference` writes them, and a test compares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

from postroom.store import StoreCapabilities
from postroom.stores import SCHEMES, open_store

FOLDER = Path(__file__).parents[2] / "docs/reference"
MADE = "<!-- Made by `python -m tests.docs.reference` from what the code declares; a test compares. -->"
EXPLAINED = re.compile(r"^    (\w+): [^\n]+\n    \"\"\"(.+?)\"\"\"", re.MULTILINE | re.DOTALL)

STORES = f"""# Stores

{MADE}

The same promises hold on every store: each passes the whole contract suite of `postroom.testing.contracts` against the real
server. A case is skipped only where the store declares that it does not apply; these are the declarations.

{{table}}

{{meanings}}

## What else to know

- **MariaDB** is what `mysql` is tested with. MySQL 8 is written for; its tests run where `POSTROOM_TEST_MYSQL` names a
  server, and ours have none.
- **MongoDB** keeps a transaction open whose client was killed, until `transactionLifetimeLimitSeconds` (60 by default) are
  over: a relay that dies in the middle of one keeps its lanes waiting for so long.
- **MongoDB as a standalone server** is refused, unless its URL has `postroom_transactions=off`. Then no message commits with
  your data, several put together are not all or none, numbers may be off by what moves while they are counted, and a command
  that was killed halfway is made good by the next, or by the next takeover: see
  [Work without transactions](../how-to/without-transactions.md#on-a-standalone-server).
"""


def pages() -> dict[Path, str]:
    """Each page that is made, by its file."""
    return {FOLDER / "stores.md": stores()}


def stores() -> str:
    """What each store declares."""
    urls = [*dict.fromkeys(SCHEMES.values()), "mongodb://host/database?postroom_transactions=off"]
    declared = [(url, open_store(url).capabilities) for url in urls]
    names = [field.name for field in fields(StoreCapabilities) if field.name != "name"]
    rows = [["store", "URL", *names]]
    rows += [[c.name, f"`{url}`", *(_shown(getattr(c, name)) for name in names)] for url, c in declared]
    return STORES.format(table=table(rows), meanings=meanings(StoreCapabilities))


def meanings(declaration: type) -> str:
    """What each field of a declaration says, in its own words."""
    found = EXPLAINED.findall(inspect.getsource(declaration))
    return "\n".join(f"- `{name}`: {' '.join(text.split())}" for name, text in found)


def table(rows: Sequence[Iterable[str]]) -> str:
    """The rows as a table, the first one its heading."""
    heading, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([heading, "|" + "---|" * len(list(rows[0])), *rest])


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return "none" if not value else f"{value.total_seconds() * 1e6:g} µs"
        case _:
            return str(value)


if __name__ == "__main__":
    for file, text in pages().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
