"""The links of a page, and the places in a page that a link may lead to."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])+\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?)(?: *\{ *#([\w-]+) *\})? *$", re.MULTILINE)


def links(text: str) -> Iterator[str]:
    """Where the links and pictures of a page lead; those in code are none."""
    prose = re.sub(r"`[^`\n]+`\]", "code]", FENCED.sub("", text))
    prose = re.sub(r"`[^`\n]+`", "", prose)
    for match in LINK.finditer(prose):
        yield match[1] or match[2]


def anchors(text: str) -> set[str]:
    """What a `#…` of this page may say: a heading, as it is made into one on the site and on a git host."""
    found: set[str] = set()
    for title, named in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title)
        found.add(named or slug(plain))
    return found


def slug(title: str) -> str:
    """A heading's anchor."""
    text = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def broken(page: Path) -> Iterator[str]:
    """Each relative link of this page that leads nowhere."""
    for link in links(page.read_text()):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield f"{link}: there is no such heading; there are {', '.join(sorted(anchors(target.read_text())))}"
