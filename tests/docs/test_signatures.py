"""```py: a signature in docs/reference/api.md, which is made from the code. Only that page may have them: nothing runs them.

Each is one definition without a body, of a name that is really there. That it is up to date is for test_reference.py to say.
"""

from __future__ import annotations

import ast

import pytest
from tests.docs.blocks import ROOT, Block, blocks_of, each, kinds_of
from tests.docs.reference import FOLDER

import postroom

PUBLIC = {name: getattr(postroom, name) for name in postroom.__all__}


def check_signature(code: str) -> None:
    (found,) = ast.parse(code).body
    if isinstance(found, ast.ClassDef):
        assert isinstance(PUBLIC.get(found.name), type), f"there is no class {found.name}"
        (found,) = found.body
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
    owners = [thing for thing in PUBLIC.values() if isinstance(thing, type)]
    assert found.name in PUBLIC or any(hasattr(owner, found.name) for owner in owners), f"nothing has {found.name}"
    assert [ast.unparse(line) for line in found.body] == ["..."], "what could be run must be run"


@each("signature")
def test_a_signature_defines_a_name_that_is_there_and_does_nothing(block: Block) -> None:
    check_signature(block.code)


@pytest.mark.parametrize(
    "code",
    [
        "def open_sotre(url: str) -> Store: ...",
        "class Outbocks:\n    def __init__(self): ...",
        "def open_store(url: str) -> Store:\n    return url",
        "open_store('sqlite:///shop.db')",
    ],
)
def test_what_is_no_signature_of_ours_is_found(code: str) -> None:
    with pytest.raises(AssertionError):
        check_signature(code)


def test_no_other_page_may_have_a_block_that_nobody_runs() -> None:
    text = "```py\ndef open_store(url: str) -> Store: ...\n```\n"
    for page in (ROOT / "README.md", ROOT / "docs/how-to/use-with-django.md", FOLDER / "errors.md"):
        (block,) = blocks_of(page, text)
        assert kinds_of(block) == []
    (block,) = blocks_of(FOLDER / "api.md", text)
    assert kinds_of(block) == ["signature"]
