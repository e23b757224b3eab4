"""Things made once and kept between runs: copies of binaries, unpacked packages."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import places
from tests.servers.locks import flocked

if TYPE_CHECKING:
    from collections.abc import Callable


def cached(key: str, fill: Callable[[Path], None]) -> Path:
    """The directory `key` of the cache, made by `fill(directory)` the first time; never a half of it."""
    home = _home()
    with flocked(home / f"{key}.lock"):
        if not (home / key).exists():
            with tempfile.TemporaryDirectory(dir=home, prefix=f"{key}.", ignore_cleanup_errors=True) as making:
                fill(whole := Path(making) / "whole")
                _open_to_all(whole)
                whole.rename(home / key)
    return home / key


def copied(key: str, base: Path, *names: str) -> Path:
    """A directory with copies of the trees `names` of `base` that the user who runs the servers can read."""

    def fill(whole: Path) -> None:
        for name in names:
            shutil.copytree(base / name, whole / name, symlinks=True)

    return cached(key, fill)


def _home() -> Path:
    """The first place that we own and can write in; as root one that nobody can read, unlike /root."""
    user = os.geteuid()
    kept = Path("/var/cache") if user == 0 else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    shared = places.public_temp() / f"postroom-tests-{user}"
    for home in (kept / "postroom-tests", shared):
        try:
            home.mkdir(mode=0o755, parents=True, exist_ok=True)
            facts = home.lstat()
        except OSError:
            continue
        # In a shared temporary directory somebody else may have put the name there first.
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == user and os.access(home, os.W_OK):
            home.chmod(0o755)
            return home
    raise PermissionError(f"There is no directory for a cache: tried {kept} and {shared}.")


def _open_to_all(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
