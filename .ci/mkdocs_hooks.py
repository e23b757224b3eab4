"""What the site does to the pages, which are written to be read on a git host as well.

- The navigation is made from the folders: a new page is in it at once, under its own title.
- The changelog is a page, too, and so is what each example says of itself.
- A link to the code or a test is shown as a name: the site has no code.
- The options behind a block's language are for the tests; of these a file's name is shown above the block.
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
ELSEWHERE = {"CHANGELOG.md": CHANGELOG} | {
    page.relative_to(ROOT).as_posix(): f"examples/{page.parent.name}.md"
    for page in sorted(ROOT.glob("examples/*/README.md"))
}
"""Pages that do not stand in docs/, and what they are called on the site."""
if not (DOCS / "index.md").exists():
    ELSEWHERE["README.md"] = "index.md"
FENCED = re.compile(r"^( *)(`{3,})(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
INFO = re.compile(r"^( *`{3,})(\w+)(?:[^\n]* file=(\S+))?[^\n]*", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
CODE = re.compile(
    r'<div class="language-(\w+) highlight">(?:<span class="filename">[^<]*</span>)?<pre>(.*?)</pre>', re.DOTALL
)
SHOWN_AS = {"py": "python", "url": "output", "sh": "bash"}
HOW_TO: dict[str, tuple[str, ...]] = {
    "First steps": ("put-a-message", "run-a-relay", "handle-messages-once", "pick-*", "test-*"),
    "With your framework": ("use-with-*", "without-transactions"),
    "Brokers and webhooks": ("send-to-*", "receive-*"),
    "In production": ("*",),
}
"""The pages of how-to/ by their names: the first that fits."""
REFERENCE = ("cli", "settings", "api", "tables", "errors", "events", "stores", "transports", "glossary")
EXPLAIN = ("why-an-outbox", "what-once-means", "order", "what-can-be-lost*", "lanes", "tables", "cost")


def on_config(config: Any) -> Any:
    """Make the navigation."""
    start = [_entry(page) for page in (DOCS / "index.md", DOCS / "start.md") if page.exists()]
    others = [_entry(page) for page in sorted(DOCS.glob("*.md")) if page.stem not in {"index", "start"}]
    examples = [{_title(ROOT / path): uri} for path, uri in ELSEWHERE.items() if uri.startswith("examples/")]
    config.nav = [
        {"Start": [*(start or [{"Postroom": "index.md"}]), *others, {"Examples": examples}]},
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
    return {_title(page): page.relative_to(DOCS).as_posix()}


def _title(page: Path) -> str:
    """What a page is called, without "How to"."""
    title = page.read_text().partition("\n")[0].removeprefix("# ").removeprefix("How to ").replace("`", "")
    return title[:1].upper() + title[1:]


def on_files(files: Any, config: Any) -> Any:
    """Add what stands elsewhere."""
    for path, uri in ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Prose and code by turns: links in the one, the languages of the other."""
    uri = page.file.src_uri
    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [_prose(markdown[end : block.start()], uri), INFO.sub(_language, block[0], count=1)]
        end = block.end()
    return "".join([*parts, _prose(markdown[end:], uri)])


def _language(fence: re.Match[str]) -> str:
    title = f' title="{fence[3]}"' if fence[3] else ""
    return fence[1] + SHOWN_AS.get(fence[2], fence[2]) + title


def _prose(text: str, uri: str) -> str:
    return LINK.sub(lambda link: _link(link, uri), text)


def _link(link: re.Match[str], uri: str) -> str:
    """The same link on the site; what the site has not is a name."""
    words, (target, _, anchor) = link[1], link[2].partition("#")
    if "://" in link[2] or not target:
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_origin(uri)), target))
    found = _on_site(f"{path}/README.md" if (ROOT / path).is_dir() else path)
    if not found:
        return words if " " in words or "`" in words else f"`{words}`"
    way = posixpath.relpath(found, posixpath.dirname(uri) or ".")
    return f"[{words}]({way}{'#' * bool(anchor)}{anchor})"


def _origin(uri: str) -> str:
    """Where a page of the site stands in the repository."""
    return next((path for path, there in ELSEWHERE.items() if there == uri), f"docs/{uri}")


def _on_site(path: str) -> str | None:
    """What a file of the repository is called on the site, if it is there."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return ELSEWHERE.get(path)


def on_page_content(html: str, **_: Any) -> str:
    """Tell each picture, and each block of code, how wide it is."""
    return CODE.sub(_fitted, html)


def _fitted(block: re.Match[str]) -> str:
    lines = unescape(re.sub(r"<[^>]+>", "", block[2])).splitlines()
    kind = "fitted picture" if block[1] == "text" else "fitted"
    columns = max(map(len, lines), default=1)
    return block[0].replace('highlight">', f'highlight {kind}" style="--columns: {columns}">', 1)
