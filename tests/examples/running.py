"""The commands of an example's README, run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def blocks(name: str) -> list[list[str]]:
    """The lines of each `sh` block of an example's README, without the exports."""
    found = re.findall(r"```sh\n(.+?)```", (EXAMPLES / name / "README.md").read_text(), re.DOTALL)
    return [[line for line in block.splitlines() if not line.startswith("export")] for block in found]


def words(line: str) -> list[str]:
    """The command in this line, by the Python that runs the tests."""
    program, *arguments = shlex.split(line)
    started = {"postroom": ["-m", "postroom"], "uvicorn": ["-m", "uvicorn"], "python": []}
    return [sys.executable, *started[program], *arguments]


def run(name: str, line: str, store: str) -> str:
    """What a command that ends well says, in the folder of the example."""
    done = subprocess.run(
        words(line),
        cwd=EXAMPLES / name,
        env={**os.environ, "POSTROOM_STORE": store},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout
