"""```sh: commands that are not run. Those of ours could be: options, targets, extras, settings and files are there."""

from __future__ import annotations

import pytest
from tests.docs.blocks import ROOT, Block, each
from tests.docs.commands import NoSuchThing, check_commands


@each("commands")
def test_a_block_of_commands_could_be_typed(block: Block) -> None:
    check_commands(block.code, block.page)


@pytest.mark.parametrize(
    "line",
    [
        "postroom relay --drian",
        "postroom rely",
        "postroom inbox lsit",
        "export X=1 && postroom put --keys 7",
        "make coffee",
        "pip install 'postroom[kafak]'",
        "export POSTROOM_STOER=sqlite:///shop.db",
        "POSTROOM_STOER=sqlite:///shop.db postroom status",
        "python nowhere.py",
        "python -m postrom",
        "frobnicate --all",
        "postroom list --json > all.jsonl && frobnicate < all.jsonl",
        "postroom relay --batch many",
    ],
)
def test_a_command_that_would_be_refused_is_found(line: str) -> None:
    with pytest.raises(NoSuchThing):
        check_commands(line, ROOT / "README.md")


def test_where_the_output_goes_is_no_argument() -> None:
    check_commands("postroom demo --plain > demo.log\npostroom put --jsonl - < all.jsonl", ROOT / "README.md")
