"""```sh: commands that are not run here. Those of ours could be: options, targets, extras, settings and files are there.

They are for `make`, `pip`, `docker` and the like; tests/examples runs those of the examples. What is for `postroom`, or for
Python, in another page can be run, and says so: `sh run`, or `sh project=…`.
"""

from __future__ import annotations

import pytest
from tests.docs.blocks import ROOT, Block, blocks_of, each
from tests.docs.commands import NoSuchThing, check_commands, commands


@each("commands")
def test_a_block_of_commands_could_be_typed(block: Block) -> None:
    check_commands(block.code, block.page)


def could_be_run(block: Block) -> bool:
    return any(words[:1] in (["postroom"], ["python"], ["alembic"]) for words in commands(block.code))


@each("commands")
def test_what_could_be_run_is_run(block: Block) -> None:
    assert not could_be_run(block) or block.page.is_relative_to(ROOT / "examples")


def test_a_command_that_could_be_run_and_is_not_is_found() -> None:
    (block,) = blocks_of(ROOT / "README.md", "```sh\ncd shop && postroom init\n```\n")
    assert could_be_run(block)


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
