"""Every link of every page leads somewhere: to a file that is there, and to a heading in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT
from tests.docs.links import broken, links

OUTSIDE = (
    "http://127.0.0.1:",  # the reader's own machine
    "https://github.com/cloudevents/spec",
    "https://keepachangelog.com",
    "https://pypi.org/project/",
    "https://semver.org",
    "https://www.standardwebhooks.com",
)
"""What pages may link to in the wide world. It is not fetched: a page is complete without it."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_link_leads_to_a_stranger(page: Path) -> None:
    outside = [link for link in links(page.read_text()) if "://" in link]
    assert [link for link in outside if not link.startswith(OUTSIDE)] == []


@pytest.mark.parametrize("link", ["nowhere.md", "README.md#no-such-heading", "#no-such-heading", "docs/nowhere/"])
def test_a_link_that_leads_nowhere_is_found(link: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"# Here\n\n[there]({link}) and [`code`](README.md#here)\n\n`[no](link.md)`\n")
    assert len(list(broken(tmp_path / "README.md"))) == 1
