"""The wheel, installed where nothing else is: what a newcomer has after `pip install`."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.packaging.conftest import CONSTRAINTS, PIP, ROOT, Environment
from tests.packaging.test_archives import NOT_FOR_SERVICES, PROJECT

README = (ROOT / "README.md").read_text()
TABLES = """
import asyncio
from postroom import open_store

async def main():
    async with open_store("sqlite:///shop.db") as store:
        await store.schema.migrate()

asyncio.run(main())
"""
"""The tables without the command line, which needs an extra."""
CORE = ["", ".outbox", ".relay", ".inbox", ".stores.sqlite", ".config.load", ".transports.local", ".ops.health_port"]
STORES = {
    "postgres": "postgresql://app@db/shop",
    "mysql": "mysql://app@db/shop",
    "mongo": "mongodb://db/shop?replicaSet=rs0",
}
BROKERS = {
    "kafka": "kafka://broker:9092/orders",
    "amqp": "amqp://broker/?exchange=orders",
    "nats": "nats://broker:4222/ORDERS?subject=orders.paid",
    "redis": "redis://server:6379/orders",
    "sqs": "sqs://eu-central-1/orders.fifo",
    "http": "https://shop.example/hooks",
}


def first_block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert match, f"the README has no block of {language}"
    return match[1]


def keys_put(shop: Path) -> list[str]:
    with sqlite3.connect(shop) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM outbox")]


def says(environment: Environment, line: str, folder: Path) -> str:
    done = environment.run(*shlex.split(line), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shop(bare: Environment, tmp_path: Path) -> Path:
    """A folder with a shop.db that has our tables."""
    bare.python_says(TABLES, cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize("module", CORE)
def test_the_core_loads_nothing_that_python_does_not_have(module: str, bare: Environment, tmp_path: Path) -> None:
    loaded = bare.python_says(f"import sys, postroom{module}; print(*sys.modules)", cwd=tmp_path).split()
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"__main__"} == {"postroom"}


def test_the_first_ten_lines_of_the_readme_work_with_nothing_else_installed(bare: Environment, shop: Path) -> None:
    """Whoever reads no further has seen the whole of it: the data, the message and the commit."""
    lines = [line for line in first_block("python").splitlines() if line]
    assert len(lines) <= 10
    bare.python_says("\n".join(lines), cwd=shop)
    assert keys_put(shop / "shop.db") == ["order-7"]


def test_the_command_without_its_extra_says_which(bare: Environment, tmp_path: Path) -> None:
    for program in (["postroom"], ["python", "-m", "postroom"]):
        done = bare.run(*program, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "The command line needs click and rich: run pip install 'postroom[cli]'.\n"


def test_the_install_line_of_the_readme_installs_what_is_here(tmp_path: Path) -> None:
    (line,) = re.findall(r"^pip install (\S+)", README, re.MULTILINE)
    # Without the drivers, so that nothing is fetched: what is tested is that this names something that can be had.
    options = [
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--target",
        str(tmp_path),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *shlex.split(line)], cwd=ROOT, check=True)
    assert (tmp_path / "postroom" / "__init__.py").exists()


def test_the_readme_has_an_inbox_of_a_few_lines() -> None:
    inbox = re.search(r"^```python inbox\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert inbox
    assert len([line for line in inbox[1].splitlines() if line]) <= 6


def test_a_wheel_is_built_without_the_drivers(tmp_path: Path) -> None:
    make = ["make", "--dry-run", f"VENV={tmp_path / 'new'}", "wheel"]
    planned = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "-m build" in planned
    assert "[dev]" not in planned


def test_the_readme_from_the_tables_to_the_list(with_cli: Environment, tmp_path: Path) -> None:
    init = re.search(r"`(postroom init [^`]+)`", README)
    assert init
    assert init.start() < README.index(first_block("python"))
    says(with_cli, init[1], tmp_path)
    with_cli.python_says(first_block("python"), cwd=tmp_path)
    said = [says(with_cli, line[2:], tmp_path) for line in first_block("console").splitlines()]
    assert any("order-7" in each for each in said)
    assert json.loads(says(with_cli, "postroom status --store sqlite:///shop.db --json", tmp_path))["pending"] == 1


def test_the_demo_runs_from_the_wheel(with_cli: Environment, tmp_path: Path) -> None:
    done = with_cli.run("postroom", "demo", "--plain", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"lost +0  ok\n", done.stdout)
    assert not list(tmp_path.iterdir())


def test_every_command_shows_its_help(with_cli: Environment, tmp_path: Path) -> None:
    listed = with_cli.run("postroom", "--help", cwd=tmp_path).stdout.partition("Commands:\n")[2]
    commands = re.findall(r"^  (\w+)  ", listed, re.MULTILINE)
    assert {"demo", "init", "relay"} <= set(commands)
    for command in commands:
        assert with_cli.run("postroom", command, "--help", cwd=tmp_path).stdout.startswith(f"Usage: postroom {command}")


def refused(done: subprocess.CompletedProcess[str], extra: str) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"pip install 'postroom[{extra}]'" in done.stderr


@pytest.mark.parametrize(("extra", "url"), STORES.items())
def test_a_store_without_its_extra_says_which(extra: str, url: str, with_cli: Environment, tmp_path: Path) -> None:
    refused(with_cli.run("postroom", "init", "--store", url, cwd=tmp_path), extra)


@pytest.mark.parametrize(("extra", "url"), BROKERS.items())
def test_a_broker_without_its_extra_says_which(extra: str, url: str, with_cli: Environment, shop: Path) -> None:
    relay = ("postroom", "relay", "--store", "sqlite:///shop.db", "--to", url, "--drain")
    refused(with_cli.run(*relay, cwd=shop), extra)


def test_every_extra_names_packages_that_can_be_had_together(bare: Environment, wheel: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    bare.install("--dry-run", "--report", str(report), *CONSTRAINTS, f"{wheel}[all]")
    found = {canonicalize_name(each["metadata"]["name"]) for each in json.loads(report.read_text())["install"]}
    for extra, asked in PROJECT["optional-dependencies"].items():
        if extra not in NOT_FOR_SERVICES:
            assert {canonicalize_name(Requirement(each).name) for each in asked} <= found, extra


def test_pip_finds_nothing_missing_or_clashing(with_cli: Environment) -> None:
    done = subprocess.run([*PIP, "--python", str(with_cli.python), "check"], timeout=100, check=False)
    assert done.returncode == 0
