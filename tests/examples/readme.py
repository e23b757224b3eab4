"""The commands of an example's README, run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
EXIT_CODE = r"  # exit code (\d+).*"


@dataclass(frozen=True)
class Example:
    """A folder in examples/, and the store that its commands find in POSTROOM_STORE."""

    name: str
    store: str

    @property
    def folder(self) -> Path:
        return EXAMPLES / self.name

    def blocks(self) -> list[list[str]]:
        """The lines of each block of commands, without the export."""
        found = re.findall(r"```sh\n(.+?)```", (self.folder / "README.md").read_text(), re.DOTALL)
        return [[line for line in block.splitlines() if not line.startswith("export")] for block in found]

    def run(self, line: str, **env: str) -> str:
        """What a command says. It must end as the line says, which is well unless a comment names another exit code."""
        wanted = re.search(EXIT_CODE, line)
        done = subprocess.run(
            self.words(re.sub(EXIT_CODE, "", line)),
            cwd=self.folder,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == int(wanted[1] if wanted else 0), f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, line: str, stdout: int = subprocess.DEVNULL, /, **env: str) -> subprocess.Popen[bytes]:
        """A command that goes on until it is ended: `with example.start(…) as process:`."""
        return subprocess.Popen(
            self.words(line), cwd=self.folder, env=self.environment(**env), stdout=stdout, stderr=subprocess.DEVNULL
        )

    def words(self, line: str) -> list[str]:
        """The command, in this Python."""
        first, *words = shlex.split(line)
        return [sys.executable, *(["-m", "postroom"] if first == "postroom" else []), *words]

    def environment(self, **env: str) -> dict[str, str]:
        return {**os.environ, "POSTROOM_STORE": self.store, **env}
