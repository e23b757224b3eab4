"""The package as strangers get it: built once a run, installed where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
CONSTRAINTS = ["-c", str(ROOT / ".ci/constraints.txt")]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in a folder of its own, without pip: the one of the tests installs into it, as make does."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        venv.create(folder, with_pip=False, symlinks=True)
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def install(self, *what: str) -> None:
        command = [*PIP, "--python", str(self.python), "install", *what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def run(self, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A program of the environment, which inherits no variable: least of all PYTHONPATH."""
        command = [str(self.folder / "bin" / program), *arguments]
        environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "100", "PYTHONWARNINGS": "error"}
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False
        )

    def python_says(self, code: str, *, cwd: Path) -> str:
        done = self.run("python", "-c", code, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout


def build(source: Path, to: Path, *kinds: str) -> None:
    """The archives of these kinds; both, the wheel from the source archive, when none is named. Without the network."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(to), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and with the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    (found,) = dist.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Postroom alone. No index is asked: were anything needed, it could not be installed."""
    environment = Environment.make(tmp_path_factory.mktemp("bare") / "venv")
    environment.install("--no-index", str(wheel))
    return environment


@pytest.fixture(scope="session")
def with_cli(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Postroom and its command line, as `pip install 'postroom[cli]'` makes it."""
    environment = Environment.make(tmp_path_factory.mktemp("cli") / "venv")
    environment.install(*CONSTRAINTS, f"{wheel}[cli]")
    return environment
