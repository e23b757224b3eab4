"""The peers' own virtual environment: made when it is first needed, and again when the requirements change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
VENV = ROOT / ".venv-peers"
REQUIREMENTS = HERE / "requirements.txt"
PATIENCE_SECONDS = 600


def python() -> Path:
    """The interpreter that has the peers."""
    stamp, wanted = VENV / "requirements.txt", REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"==> A virtual environment for the peers in {VENV.name}, from PyPI (once)", file=sys.stderr, flush=True)
        # The environment has no pip of its own, as the one we run in has none: the pip outside installs into it.
        outside = Path(sys.base_prefix) / "bin" / "python3"
        _run(outside, "-m", "venv", "--clear", "--without-pip", VENV)
        pip = ("-m", "pip", "--python", VENV / "bin/python", "--disable-pip-version-check")
        _run(outside, *pip, "install", "--quiet", "--no-deps", "-r", REQUIREMENTS)
        stamp.write_text(wanted)
    return VENV / "bin/python"


def drain(script: str, url: str, number: int, *settings: int) -> float:
    """How many per second that peer drained; RuntimeError unless it did all of them."""
    words = [url, str(number), *map(str, settings)]
    answer = json.loads(_run(python(), HERE / script, *words).splitlines()[-1])
    if answer["left"] or answer["done"] < number:
        raise RuntimeError(f"{script} did {answer['done']:,} of {number:,} and left {answer['left']:,}")
    return number / float(answer["seconds"])


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[1]} failed: {done.stderr[-2000:]}")
    return done.stdout
