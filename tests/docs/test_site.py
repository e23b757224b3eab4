"""The site is built without a warning, is whole, and needs nobody else: no font, no script, no picture from afar."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT
from tests.docs.site import Page, build
from tests.docs.test_links import OUTSIDE


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site").resolve()
    assert build(folder) == ""
    return folder


@cache
def seen(file: Path) -> Page:
    return Page(file)


def pages(site: Path) -> list[Page]:
    """All but the one for wrong addresses, which does not know where it is."""
    return [seen(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"]


def test_every_page_of_the_docs_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    wanted = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    wanted = {page.with_name("index.html") if page.name == "README.html" else page for page in wanted}
    found = {page.leads(link)[0].relative_to(site) for page in pages(site) for link in page.nav}
    elsewhere = {Path(f"examples/{page.parent.name}.html") for page in ROOT.glob("examples/*/README.md")}
    assert wanted | elsewhere | {Path("changelog.html")} <= found


def test_every_link_of_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    lost = []
    for page in pages(site):
        for link in page.links | page.fetched:
            if "://" not in link:
                file, anchor = page.leads(link)
                if not file.is_file() or (anchor and file.suffix == ".html" and anchor not in seen(file).ids):
                    lost.append(f"{page.file.relative_to(site)}: {link}")
    assert lost == []


def test_nothing_is_fetched_from_elsewhere_and_no_link_leads_to_a_stranger(site: Path) -> None:
    for page in pages(site):
        assert [each for each in page.fetched if "//" in each] == []
        assert [each for each in page.links if "//" in each and not each.startswith(OUTSIDE)] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()) == []


def test_what_is_for_the_tests_is_not_shown(site: Path) -> None:
    """The options behind a block's language, and the files outside docs/, are nothing for a reader of the site."""
    for page in pages(site):
        text = page.file.read_text()
        assert "```" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
        assert not re.search(r'href="[^"]*\.(?:py|sql|md)(?:#|")', text)


def test_a_block_that_is_a_file_has_its_name_above_it(site: Path) -> None:
    django = (site / "how-to/use-with-django.html").read_text()
    assert "shop/views.py" in re.findall(r'<span class="filename">([^<]*)</span>', django)
    assert "file=" not in re.sub(r"<script.*?</script>", "", django, flags=re.DOTALL)


def test_a_picture_is_told_how_wide_it_is(site: Path) -> None:
    lanes = (site / "explain/lanes.html").read_text()
    columns = re.findall(r'fitted picture" style="--columns: (\d+)"', lanes)
    assert columns
    assert all(30 < int(each) < 130 for each in columns)


def test_the_site_can_be_searched_and_follows_the_light(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert (site / "search/search_index.json").stat().st_size > 100_000
    assert index.count("data-md-color-media") >= 3
    assert "fonts.googleapis" not in index
