"""```url, json, yaml, ini, dockerfile, toml other: what they say they are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from tests.docs.blocks import Block, each

from postroom import open_publisher
from postroom.transports import TRANSPORTS
from postroom.urls import redact


def is_urls(code: str) -> None:
    """Each line opens a transport, and shows no password when it is logged."""
    for url in code.splitlines():
        without_files = re.sub(r"&[\w.]+\.location=[^&]*", "", url)
        module = TRANSPORTS[url.partition("://")[0]].module
        assert open_publisher(without_files).capabilities.name == module.removesuffix("_streams")
        assert "s3cr" not in redact(url)


def is_json(code: str) -> None:
    """One value, or one a line."""
    try:
        json.loads(code)
    except ValueError:
        for line in code.splitlines():
            json.loads(line)


def is_yaml(code: str) -> None:
    assert all(isinstance(document, dict | list) for document in yaml.safe_load_all(code))


def is_ini(code: str) -> None:
    """As systemd reads it: a name may come twice."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.read_string(code)
    assert parser.sections()


def is_toml(code: str) -> None:
    assert tomllib.loads(code)


def is_dockerfile(code: str) -> None:
    """Hadolint has nothing against it but style."""
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, "-t", "error", "-"], input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


IS: dict[str, Callable[[str], None]] = {
    "url": is_urls, "json": is_json, "yaml": is_yaml, "ini": is_ini, "toml": is_toml, "dockerfile": is_dockerfile,
}  # fmt: skip


@each("url", "json", "yaml", "ini", "toml", "dockerfile")
def test_a_block_of_data_is_what_it_says(block: Block) -> None:
    IS[block.language](block.code)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("url", "kafak://broker/orders"),
        ("json", '{"amount": 12,}'),
        ("yaml", "services: [relay"),
        ("ini", "ExecStart=postroom relay"),
        ("toml", "store = sqlite"),
        ("dockerfile", "FORM python:3.12"),
    ],
)
def test_what_is_something_else_is_found(language: str, code: str) -> None:
    with pytest.raises(Exception, match=r"(?s)."):
        IS[language](code)
