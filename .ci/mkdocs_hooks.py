"""What the site does to the pages, which are written to be read on a git host as well.

- The navigation is made from the folders: a new page is in it at once, under its own title.
- The changelog is a page, too.
- A link that leads out of docs/, to the code or a test, is shown as a name: the site has no code.
- The options behind a block's language are for the tests.
- Pictures and code are drawn as large as fits.
"""

from __future__ import annotations

import posixpath
import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CHANGELOG = "changelog.md"
FENCED = re.compile(r"^( *)(`{3,})(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
INFO = re.compile(r"^( *`{3,})(\w+)[^\n]*", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
CODE = re.compile(r'<div class="language-(\w+) highlight"><pre>(.*?)</pre>', re.DOTALL)
SHOWN_AS = {"py": "python", "url": "text", "sh": "bash"}
HOW_TO: dict[str, tuple[str, ...]] = {
    "First steps": ("put-a-message", "run-a-relay", "handle-messages-once", "pick-*", "test-*"),
    "With your framework": ("use-with-*", "without-transactions"),
    "Brokers and webhooks": ("send-to-*", "receive-*"),
    "In production": ("*",),
}
"""The pages of how-to/ by their names: the first that fits."""
REFERENCE = ("cli", "settings", "api", "tables", "errors", "events", "stores", "transports")
EXPLAIN = ("why-an-outbox", "what-once-means", "order", "what-can-be-lost*", "lanes", "tables", "cost")


def on_config(config: Any) -> Any:
    """Make the navigation."""
    start = [_entry(page) for page in (DOCS / "index.md", DOCS / "start.md") if page.exists()]
    others = [_entry(page) for page in sorted(DOCS.glob("*.md")) if page.stem not in {"index", "start"}]
    config.nav = [
        {"Start": start + others or [{"Postroom": "index.md"}]},
        {"How-to": _grouped("how-to", HOW_TO)},
        {"Explain": _ordered("explain", EXPLAIN)},
        {"Reference": _ordered("reference", REFERENCE)},
        {"Decisions": _ordered("decisions", ("README",))},
        {"Changelog": CHANGELOG},
    ]
    return config


def _grouped(folder: str, groups: dict[str, tuple[str, ...]]) -> list[Any]:
    """The pages of a folder under headings."""
    left = sorted((DOCS / folder).glob("*.md"))
    made = []
    for title, patterns in groups.items():
        mine = list(dict.fromkeys(page for pattern in patterns for page in left if page.match(f"{pattern}.md")))
        left = [page for page in left if page not in mine]
        if mine:
            made.append({title: [_entry(page) for page in mine]})
    return made


def _ordered(folder: str, first: tuple[str, ...]) -> list[Any]:
    """The pages of a folder: these first, then the others."""
    (group,) = _grouped(folder, {"": (*first, "*")}) or [{"": []}]
    return list(group[""])


def _entry(page: Path) -> dict[str, str]:
    """A page under its title, without "How to"."""
    title = page.read_text().partition("\n")[0].removeprefix("# ").removeprefix("How to ").replace("`", "")
    return {title[:1].upper() + title[1:]: page.relative_to(DOCS).as_posix()}


def on_files(files: Any, config: Any) -> Any:
    """Add the changelog; and the README, where there is no landing page."""
    text = (ROOT / "CHANGELOG.md").read_text()
    files.append(File.generated(config, CHANGELOG, content=_from_root(text)))
    if not (DOCS / "index.md").exists():
        files.append(File.generated(config, "index.md", content=_from_root((ROOT / "README.md").read_text())))
    return files


def _from_root(text: str) -> str:
    """A page of the root, with its links as if it were in docs/."""
    return LINK.sub(lambda link: f"[{link[1]}]({_moved(link[2])})", text)


def _moved(target: str) -> str:
    if "://" in target or target.startswith("#"):
        return target
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Prose and code by turns: links in the one, the languages of the other."""
    folder = posixpath.dirname(page.file.src_uri)
    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [_prose(markdown[end : block.start()], folder), INFO.sub(_language, block[0], count=1)]
        end = block.end()
    return "".join([*parts, _prose(markdown[end:], folder)])


def _language(fence: re.Match[str]) -> str:
    return fence[1] + SHOWN_AS.get(fence[2], fence[2])


def _prose(text: str, folder: str) -> str:
    return LINK.sub(lambda link: _link(link, folder), text)


def _link(link: re.Match[str], folder: str) -> str:
    words, target = link[1], link[2]
    path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
    if "://" in target or target.startswith("#"):
        return link[0]
    if path == "../CHANGELOG.md":
        return f"[{words}]({posixpath.relpath(CHANGELOG, folder or '.')})"
    if (DOCS / path).is_dir() and not path.startswith(".."):
        return f"[{words}]({posixpath.join(target, 'README.md')})"
    if not path.startswith("../"):
        return link[0]
    return words if " " in words or "`" in words else f"`{words}`"


def on_page_content(html: str, **_: Any) -> str:
    """Tell each picture, and each block of code, how wide it is."""
    return CODE.sub(_fitted, html)


def _fitted(block: re.Match[str]) -> str:
    lines = unescape(re.sub(r"<[^>]+>", "", block[2])).splitlines()
    kind = "fitted picture" if block[1] == "text" else "fitted"
    columns = max(map(len, lines), default=1)
    return block[0].replace('highlight">', f'highlight {kind}" style="--columns: {columns}">', 1)
