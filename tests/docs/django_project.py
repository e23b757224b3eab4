"""The project of docs/how-to/use-with-django.md: `startproject`, the models of examples/django_shop, and the page's files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.docs.blocks import ROOT, Block
from tests.docs.projects import lay_out, swapped
from tests.unit.integrations.django.projects import Project

SHOP = ROOT / "examples/django_shop/shop"
SETTINGS = "mysite/settings.py"
BROKER = "kafka://broker:9092/orders"
APPS = re.compile(r"^INSTALLED_APPS = \[\n(.*?)^\]\n", re.MULTILINE | re.DOTALL)
MORE = """
ROOT_URLCONF = "shop.urls"
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "other.sqlite3"}
"""
"""What the reader has besides. Relay and consumer write the same file of SQLite: they begin with the lock, and wait for it."""


def a_project(files: Mapping[str, str], broker: str, folder: Path) -> Project:
    """Laid out, with this in place of the page's broker."""
    subprocess.run([sys.executable, "-m", "django", "startproject", "mysite", folder], check=True)
    shutil.copytree(SHOP / "migrations", folder / "shop/migrations", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "models.py", "urls.py"):
        shutil.copy(SHOP / name, folder / "shop")
    lay_out({**files, SETTINGS: _settings(folder, swapped(files[SETTINGS], {BROKER: broker}))}, folder)
    (folder / "postroom.toml").write_text("[relay]\nmax_attempts = 1\n")
    return Project({}, folder=folder, settings="mysite.settings")


def _settings(folder: Path, shown: str) -> str:
    """The list of apps as the page has it, in place of the one that was there; its other settings at the end."""
    made = (folder / SETTINGS).read_text()
    apps = APPS.search(made)
    assert apps
    assert "    # ...\n" in shown
    return APPS.sub("", made) + shown.replace("    # ...\n", f'{apps[1]}    "shop",\n') + MORE


def lines(blocks: Sequence[Block], broker: str) -> list[list[str]]:
    """What the page says to type behind `python manage.py`, by words."""
    typed = [line.replace(BROKER, broker).split() for block in blocks for line in block.code.splitlines()]
    assert all(words[:2] == ["python", "manage.py"] for words in typed)
    # The webhook that stands for the broker here is nobody's but ours.
    return [[*words[2:], *(["--unsigned"] if "consume" in words else [])] for words in typed]
