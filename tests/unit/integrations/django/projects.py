"""A project of Django's on a database: what `manage.py` says and does there, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parent / "site"
SETUP = "import django; django.setup()\n"
SEVERAL = """if True:
    import io, json, shlex
    from contextlib import redirect_stderr, redirect_stdout
    from django.core.management import CommandError, call_command
    for line in {lines!r}:
        out, err, code = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                call_command(*shlex.split(line))
            except CommandError as exc:
                code = exc.returncode
                print(exc, file=err)
            except SystemExit as exc:
                code = exc.code
        print(json.dumps([line, code, out.getvalue(), err.getvalue()]))
"""


@dataclass
class Project:
    """One, by its settings."""

    databases: Mapping[str, Mapping[str, Any]]
    postroom: Mapping[str, Any] = field(default_factory=dict)
    routers: list[str] = field(default_factory=list)
    folder: Path = SITE
    settings: str = "settings"

    @classmethod
    def on(cls, url: str, **more: Any) -> Project:
        """On this database alone."""
        return cls({"default": database(url)}, **more)

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`manage.py …`, whatever comes of it."""
        return self._run(["manage.py", *arguments])

    def done(self, *arguments: str) -> str:
        """The same, which must work; what it wrote."""
        ended = self.manage(*arguments)
        assert ended.returncode == 0, f"{arguments}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def several(self, *lines: str) -> list[subprocess.CompletedProcess[str]]:
        """Several commands of `manage.py` one after the other, in one process: Django takes its time to start."""
        answers = [json.loads(line) for line in self.python(SEVERAL.format(lines=lines)).splitlines()]
        return [subprocess.CompletedProcess(*answer) for answer in answers]

    def migrate(self, alias: str = "default") -> None:
        """Make the tables of Postroom and of the shop; Django's own take longer."""
        for made in self.several(*(f"migrate {app} --database {alias} -v0" for app in ("postroom", "shop"))):
            assert made.returncode == 0, made.stderr

    def python(self, code: str) -> str:
        """What this code prints, inside the project."""
        ended = self._run(["-c", SETUP + code])
        assert ended.returncode == 0, f"{code}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": self.settings,
            "TEST_DATABASES": json.dumps(self.databases),
            "TEST_POSTROOM": json.dumps(self.postroom),
            "TEST_ROUTERS": json.dumps(self.routers),
        }

    def _run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


def database(url: str) -> dict[str, Any]:
    """An entry of DATABASES for this URL."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:]}
    return {
        "ENGINE": f"django.db.backends.{'postgresql' if parts.scheme.startswith('postgres') else 'mysql'}",
        "NAME": parts.path[1:],
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }
