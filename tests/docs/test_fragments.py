"""```py: a fragment. It is parsed, and each of its imports leads to something that is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import Block, each
from tests.docs.fragments import check_fragment


@each("fragment")
def test_a_fragment_is_python_and_imports_what_is_there(block: Block, tmp_path: Path) -> None:
    check_fragment(block.code, tmp_path)


@pytest.mark.parametrize(
    "code", ["from postroom import Outbocks", "import postrom", "def f():\n    from aiohttp import webb"]
)
def test_an_import_of_what_is_not_there_is_found(code: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Error"):
        check_fragment(code, tmp_path)


def test_what_is_no_python_is_found(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError):
        check_fragment("outbox.put(session, message", tmp_path)


def test_the_readers_own_modules_need_not_be_there(tmp_path: Path) -> None:
    check_fragment("from shop.models import Order\nawait outbox.put(session, message)", tmp_path)
