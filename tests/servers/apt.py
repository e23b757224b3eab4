"""Debian and Ubuntu packages: installed as root, or unpacked into a private prefix as anybody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import unprivileged
from tests.servers.cache import cached
from tests.servers.model import NotHere

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

POLICY = Path("/usr/sbin/policy-rc.d")
QUICK = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10", "-o", "DPkg::Lock::Timeout=60"]


def install(package: str) -> None:
    """Install a package on this machine, upgrading none and starting no service. Only root can."""
    if not unprivileged.root():
        raise NotHere("Only root can install packages.")
    with _no_service_starts():
        _apt("update", *QUICK)
        _apt("install", "-y", "--no-install-recommends", "--no-upgrade", *QUICK, package)


def unpack(package: str) -> Path:
    """A prefix, kept between runs, with the files of a package and of what it needs that is not installed."""
    version = re.search(r"^Version: (\S+)", _apt("show", "--no-all-versions", package, tool="apt-cache"), re.MULTILINE)
    if version is None:
        raise NotHere(f"apt knows no package {package}.")

    def fill(whole: Path) -> None:
        whole.mkdir()
        _apt("download", *QUICK, *_with_missing(package), cwd=whole)
        for deb in whole.glob("*.deb"):
            _command(["dpkg", "-x", os.fspath(deb), os.fspath(whole)])
            deb.unlink()

    return cached(f"{package}-{re.sub('[^0-9A-Za-z.+~-]', '_', version[1])}", fill)


def dependency(package: str, pattern: str) -> str:
    """The package that `package` needs whose whole name matches: for postgresql that may be postgresql-15."""
    names = re.findall(r"Depends: (\S+)", _apt("depends", package, tool="apt-cache"))
    return next((name for name in names if re.fullmatch(pattern, name)), package)


def libraries(prefix: Path) -> str:
    """LD_LIBRARY_PATH for programs that were unpacked into a prefix."""
    return os.pathsep.join(os.fspath(path) for path in sorted(prefix.glob("**/lib/*-linux-gnu*")) if path.is_dir())


def _with_missing(package: str) -> list[str]:
    plan = _apt("install", "--simulate", "--no-install-recommends", "--no-upgrade", package)
    return sorted({package, *re.findall(r"^Inst (\S+)", plan, re.MULTILINE)})


def _apt(*words: str, tool: str = "apt-get", cwd: Path | None = None) -> str:
    if shutil.which(tool) is None:
        raise NotHere(f"This machine has no {tool}.")
    return _command([tool, *words], cwd)


def _command(argv: Sequence[str], cwd: Path | None = None, seconds: float = 100) -> str:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"{' '.join(argv[:2])} took more than {seconds:.0f} s.") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if not line.startswith("W:")]
        raise NotHere(f"{' '.join(argv[:2])} failed: {' '.join(said)[:300] or 'it gave no reason'}")
    return done.stdout


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian asks policy-rc.d before it starts a service; 101 means no. We remove only what we wrote."""
    try:
        with POLICY.open("x") as file:
            file.write("#!/bin/sh\nexit 101\n")
    except FileExistsError:
        yield
        return
    try:
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink(missing_ok=True)
