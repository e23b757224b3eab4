"""The first ten minutes, docs/start.md: what it says to save is saved, to type is typed, and what it shows comes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- file=([\w.]+) -->\n)?^```(py|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"# exit code (\d+)")


def test_the_first_ten_minutes_go_as_the_page_says(tmp_path: Path) -> None:
    came = ""
    for kind, title, text in blocks():
        if kind == "py":
            (tmp_path / title).write_text(text)
        elif kind == "sh":
            came = "".join(typed(line, tmp_path) for line in text.splitlines())
        elif came:
            for line in text.splitlines():
                assert re.search(pattern(line), came, re.MULTILINE), f"{line!r} is shown, but this came:\n{came}"
            came = ""


def test_the_page_has_all_its_steps() -> None:
    """If it is written another way one day, the test above must not pass by finding nothing."""
    found = list(blocks())
    assert [title for kind, title, _ in found if kind == "py"] == ["shop.py", "mail.py", "billing.py"]
    assert sum(kind == "sh" for kind, _, _ in found) == 7
    assert sum(kind == "text" for kind, _, _ in found) == 7


def blocks() -> Iterator[tuple[str, str, str]]:
    """The blocks of the page, in order: what it is, the file's name, and what stands in it."""
    for match in BLOCK.finditer((ROOT / "docs/start.md").read_text()):
        yield match[2], match[1] or "", match[3]


def typed(line: str, folder: Path) -> str:
    """What is printed when this line is typed in that folder."""
    if line.startswith(("pip install", "export ")):
        return ""
    environment = {**os.environ, "COLUMNS": "120", "POSTROOM_STORE": "sqlite:///shop.db", "PYTHON": sys.executable}
    shell = f'postroom() {{ "$PYTHON" -m postroom "$@"; }}; python() {{ "$PYTHON" "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", shell], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    code = EXIT_CODE.search(line)
    assert done.returncode == (int(code[1]) if code else 0), f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def pattern(line: str) -> str:
    """A line as it is shown; … stands for what is another each time."""
    return "^" + ".*".join(map(re.escape, line.split("…"))) + "$"
