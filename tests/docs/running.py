"""What it takes to run a block: a folder with a shop in it, a Python, the command line."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tests.commands import postroom

from postroom import open_store
from postroom.contracts.ops import Query, Record

SHOP = "sqlite:///shop.db"
ORDERS = "CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)"
CHARGES = "CREATE TABLE charges (order_id TEXT PRIMARY KEY, amount INTEGER)"
PATIENCE = 100
"""How long, in seconds, one program may take: long enough for a machine that has much else to do."""
DJANGO = """
from importlib.util import find_spec
from django.conf import settings
apps = ["django.contrib.contenttypes", "django.contrib.auth"]
apps += [name for name in ("postroom.integrations.django",) if find_spec(name)]
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}, INSTALLED_APPS=apps)
import django
django.setup()
"""


def environment() -> dict[str, str]:
    """This process's environment without what would change the answers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_") and name != "COLUMNS"}
    return {**kept, "NO_COLOR": "1"}


def run(code: str, folder: Path) -> str:
    """Runs a program in the folder, where a warning is an error, and gives back what it printed."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(folder: Path, env: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments; what it says and what it complains about come as one."""
    if arguments[:2] == ("-m", "postroom"):
        done = postroom(*arguments[2:], cwd=folder, env=env, joined=True, timeout=PATIENCE)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode())
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, text=True, timeout=PATIENCE, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def prepare(url: str) -> None:
    """Makes our tables."""

    async def migrate() -> None:
        async with open_store(url) as store:
            await store.schema.migrate()

    asyncio.run(migrate())


def a_shop(folder: Path, *tables: str) -> str:
    """The URL of a `shop.db` in this folder, with our tables and these."""
    url = f"sqlite:///{folder / 'shop.db'}"
    prepare(url)
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        for table in tables:
            shop.execute(table)
    return url


def orders_unless_made_in(code: str) -> list[str]:
    """The table of orders, unless the code makes it by itself."""
    return [] if "CREATE TABLE orders" in code else [ORDERS]


def messages(url: str) -> Sequence[Record]:
    """Everything in an outbox."""

    async def find() -> Sequence[Record]:
        async with open_store(url) as store:
            return await store.ops.find(Query())

    return asyncio.run(find())


def keys_in(code: str) -> set[str]:
    """The orders that a block names."""
    return set(re.findall(r"order-\d", code))


def charges(folder: Path) -> list[tuple[str, int]]:
    """What an inbox has charged, in the shop of this folder."""
    code = "import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT * FROM charges').fetchall())"
    return list(ast.literal_eval(run(code, folder)))
