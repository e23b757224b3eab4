"""A console block: its commands are run one after the other, and what is shown below one is what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import Block, all_blocks
from tests.docs.running import CHARGES, a_shop, command, environment, orders_unless_made_in

ANYTHING = "…"
"""Stands for any text in a line; alone on its line, for any lines."""


@dataclass(frozen=True)
class Step:
    """A command of a console block, and what is shown below it."""

    line: str
    shown: Sequence[str]

    @property
    def exit_code(self) -> int:
        """0, unless a comment says `# exit code 3`."""
        said = re.search(r"# exit code (\d+)", self.line)
        return int(said[1]) if said else 0


def steps(code: str) -> Iterator[Step]:
    """The commands, each with what is shown below it."""
    joined = code.replace("\\\n", " ").rstrip("\n")
    before, *rest = re.split(r"^\$ ", joined, flags=re.MULTILINE)
    assert not before.strip(), f"a console block begins with `$ `, not with {before.splitlines()[0]!r}"
    for part in rest:
        line, _, shown = part.partition("\n")
        yield Step(line, shown.rstrip().splitlines())


def says(shown: Iterable[str], output: str) -> bool:
    """Is this what was said? An ellipsis stands for what differs from run to run."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == ANYTHING else _line(line) for line in shown)
    said = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
    return re.fullmatch(pattern, said) is not None


def _line(line: str) -> str:
    return ".*".join(map(re.escape, line.rstrip().split(ANYTHING))) + r"\n"


def run_console(code: str, folder: Path) -> None:
    """Runs the commands; each ends with its exit code, and says what is shown below it, if anything is."""
    env = environment()
    for step in steps(code):
        program, *arguments = shlex.split(step.line, comments=True)
        if program == "export":
            env |= dict(each.split("=", 1) for each in arguments)
            continue
        before = {"postroom": ["-m", "postroom"], "python": []}
        assert program in before, f"{program} cannot be run here: write it in a block of sh"
        done = command(folder, env, *before[program], *arguments)
        assert done.returncode == step.exit_code, f"{step.line}\n{done.stdout}"
        assert not step.shown or says(step.shown, done.stdout), f"{step.line} says:\n{done.stdout}"


def a_folder_for(block: Block, folder: Path) -> None:
    """The shop, and the programs of the same page: `billing.py` is its first inbox, others have their names by `file=`."""
    others = [each for each in all_blocks() if each.page == block.page and each.language == "python"]
    programs = {each.options["file"]: each.code for each in others if "file" in each.options}
    programs |= dict([("billing.py", each.code) for each in others if "inbox" in each.options][:1])
    for name, code in programs.items():
        (folder / name).write_text(code)
    a_shop(folder, CHARGES, *orders_unless_made_in("".join(programs.values())))


def whole(block: Block) -> str:
    """The block, behind those that it continues."""
    if "continued" not in block.options:
        return block.code
    earlier = [b for b in all_blocks() if b.page == block.page and b.language == "console" and b.line < block.line]
    assert earlier, f"{block} continues nothing"
    return whole(earlier[-1]) + block.code
