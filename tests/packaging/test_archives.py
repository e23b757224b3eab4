"""What is in the wheel and in the source archive, and what their metadata say."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from email.message import Message as Metadata
from email.parser import Parser
from importlib.metadata import EntryPoint
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from markdown_it import MarkdownIt
from packaging.requirements import Requirement
from tests.packaging.conftest import ROOT, build
from trove_classifiers import classifiers

import postroom

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_FOR_SERVICES = {"all", "dev", "testing"}
"""Extras for people who work on Postroom or test with it; `all` is the rest."""


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Metadata:
    (text,) = (data for name, data in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(text.decode())


def needs(metadata: Metadata, extra: str) -> set[Requirement]:
    """What this extra asks for, without the mark that says so; with the marks of platforms left out too."""
    asked = (Requirement(each) for each in metadata.get_all("Requires-Dist", []))
    found = [each for each in asked if each.marker and each.marker.evaluate({"extra": extra})]
    for each in found:
        each.marker = None
    return set(found)


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    source = ROOT / "src"
    of_the_package = {
        str(path.relative_to(source)): path.read_bytes()
        for path in (source / "postroom").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name: data for name, data in contents(wheel).items() if ".dist-info/" not in name} == of_the_package
    assert "postroom/py.typed" in of_the_package
    assert sum(name.endswith(".sql") for name in of_the_package) >= 21


def test_the_source_archive_makes_the_same_wheel_as_the_folder(wheel: Path, tmp_path: Path) -> None:
    build(ROOT, tmp_path, "--wheel")
    (from_the_folder,) = tmp_path.glob("*.whl")
    assert contents(from_the_folder) == contents(wheel)


def test_the_source_archive_has_all_that_is_needed_to_change_postroom(sdist: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("This is no clone: what belongs to it cannot be told.")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    with tarfile.open(sdist) as archive:
        inside = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}
    there = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    assert there - inside == set()


def test_the_metadata_name_what_there_is(metadata: Metadata) -> None:
    assert metadata["Name"] == "postroom"
    assert metadata["Version"] == postroom.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Project-URL") is None  # there is none yet; one that leads nowhere would be worse
    assert metadata["Home-page"] is None
    said = metadata.get_all("Classifier", [])
    assert said
    assert set(said) <= classifiers


def test_the_entry_points_can_be_loaded(wheel: Path) -> None:
    (text,) = (data for name, data in contents(wheel).items() if name.endswith("/entry_points.txt"))
    groups = ConfigParser()
    groups.read_string(text.decode())
    assert dict(groups["console_scripts"]) == {"postroom": "postroom.cli:main"}
    for group in groups.sections():
        for name, value in groups[group].items():
            assert EntryPoint(name, value, group).load(), name


def test_nothing_is_needed_that_no_extra_asks_for(metadata: Metadata) -> None:
    assert not needs(metadata, "")
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_all_is_every_extra_for_services(metadata: Metadata) -> None:
    for extra in set(PROJECT["optional-dependencies"]) - NOT_FOR_SERVICES:
        asked = needs(metadata, extra)
        assert asked, f"{extra} brings nothing"
        assert asked <= needs(metadata, "all"), extra


def test_the_long_description_is_the_readme_and_its_tables_are_whole(metadata: Metadata) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert text.strip() == (ROOT / "README.md").read_text().strip()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert any(token.type == "table_open" for token in tokens)
    assert not [token.content for token in tokens if token.type == "inline" and token.content.startswith("|")]
