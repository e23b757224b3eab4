"""The site as it is built: its pages, where their links lead, and what a browser would fetch for them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from tests.docs.blocks import ROOT

PATIENCE = 100


def build(folder: Path) -> str:
    """Builds the site into the folder, where a warning is an error, and gives back what was said."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [*command, "--config-file", str(ROOT / ".ci/mkdocs.yml")], env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass
class Page(HTMLParser):
    """A page as a browser sees it."""

    file: Path
    ids: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    """Where a reader may go."""
    fetched: set[str] = field(default_factory=set)
    """What the browser gets by itself."""
    nav: set[str] = field(default_factory=set)
    """What its navigation leads to."""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what concerns us."""
        has = {name: value or "" for name, value in attrs}
        if "id" in has:
            self.ids.add(has["id"])
        if tag == "a" and "href" in has:
            self.links.add(has["href"])
            if "md-nav__link" in has.get("class", ""):
                self.nav.add(has["href"])
        elif tag == "link" and has.get("rel") in {"prev", "next", "canonical"}:
            self.links.add(has["href"])
        else:
            self.fetched |= {has[name] for name in ("src", "href") if has.get(name)}

    def leads(self, link: str) -> tuple[Path, str]:
        """The file and the anchor that a link of this page means."""
        path, _, anchor = unquote(link).partition("#")
        return ((self.file.parent / path.partition("?")[0]).resolve() if path else self.file), anchor
