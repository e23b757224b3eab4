"""The files in deploy/, run: their commands with their variables, against a real PostgreSQL and a real Kafka."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.packaging.conftest import ROOT
from tests.packaging.deployments import DEPLOY, PORT, Start, compose, dockerfile, starts
from tests.packaging.test_deploy import commands_told, each_relay
from tests.servers.ports import listens
from tests.servers.topics import everything_in

from postroom.testing.waiting import until

INHERITED = {name: os.environ[name] for name in ("PYTHONPATH", "PATH") if name in os.environ}
PATIENCE = 90


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the files' commands are run: a folder, with servers and a port in place of the ones that they name."""

    folder: Path
    store: str
    topic: str
    port: str

    def fitted(self, start: Start) -> Start:
        """The same with what there is here in place of what its file names."""
        files = {}
        for place, (mode, _) in start.files.items():
            file = self.folder / "secrets" / Path(place).name
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{self.store}\n")
            file.chmod(mode)
            files[place] = str(file)
        env = {name: files.get(value, self.fit(value)) for name, value in start.env.items() if name != "PATH"}
        asked = {name: url.replace(PORT, self.port) for name in ("live", "ready") if (url := getattr(start, name))}
        return replace(start, arguments=[self.fit(each) for each in start.arguments], env=env, **asked)

    def fit(self, value: str) -> str:
        value = re.sub(r"postgresql://\S+", self.store, value.replace(PORT, self.port))
        return re.sub(r"kafka://\S+", self.topic, value)

    def run(self, start: Start, *arguments: str) -> str:
        """Run it, or another command in its place, to its end."""
        command = [sys.executable, "-m", "postroom", *(arguments or start.arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env(start), capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, start: Start) -> Iterator[subprocess.Popen[str]]:
        """Run it, in a folder where nothing but it could have written; its output goes to a file beside that."""
        with (self.folder / "said").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "postroom", *start.arguments],
                cwd=self.home,
                env=self.env(start),
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @property
    def home(self) -> Path:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return home

    def env(self, start: Start) -> dict[str, str]:
        return INHERITED | start.env | {"TMPDIR": str(self.home), "HOME": str(self.home)}

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()


@pytest.fixture
def machine(tmp_path: Path, postgres_database: str, kafka_url: str, kafka_topic: str) -> Machine:
    return Machine(tmp_path, postgres_database, f"{kafka_url}/{kafka_topic}", str(a_port()))


def a_port() -> int:
    """One that is free, and that no client of anything is given: those have the ports from 32768 on."""
    return next(port for port in iter(lambda: 15_000 + secrets.randbelow(15_000), 0) if not listens(port))


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except (urllib.error.URLError, OSError):
        return False


def start_of(where: str) -> Start:
    (found,) = (start for start in starts() if start.where == where)
    return found


@each_relay
def test_a_relay_starts_carries_answers_and_ends_in_time(start: Start, machine: Machine) -> None:
    relay = machine.fitted(start)
    assert relay.live
    assert relay.grace
    machine.run(relay, "init")
    machine.run(relay, "put", "order.paid", "--key", "order-7")
    with machine.running(relay) as process:
        until(lambda: answers(str(relay.live)), lambda: machine.said)
        until(lambda: answers(relay.ready or str(relay.live).replace("livez", "readyz")), lambda: machine.said)
        until(lambda: json.loads(machine.run(relay, "status", "--json"))["published"] == 1, lambda: machine.said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(relay.grace.total_seconds()) == 0, machine.said
    url, _, topic = machine.topic.rpartition("/")
    assert [record.key() for record in everything_in(url, topic)] == [b"order-7"]
    assert not list(machine.home.iterdir())  # its root may be read-only


def test_the_health_check_of_the_image_tells_the_living_from_the_dead(machine: Machine) -> None:
    check = [machine.fit(word) for word in compose()["services"]["relay"]["healthcheck"]["test"][1:]]
    relay = machine.fitted(start_of("compose.yaml relay"))
    machine.run(relay, "init")

    def healthy() -> bool:
        return (
            subprocess.run([sys.executable, *check[1:]], capture_output=True, timeout=60, check=False).returncode == 0
        )

    assert check[0] == "python"
    with machine.running(relay) as process:
        until(healthy, lambda: machine.said)
        process.terminate()
        process.wait(PATIENCE)
    assert not healthy()


@pytest.mark.parametrize("where", ["compose.yaml init", "kubernetes.yaml Job"])
def test_the_tables_are_made_once_and_again_is_no_harm(where: str, machine: Machine) -> None:
    init = machine.fitted(start_of(where))
    assert machine.run(init).startswith("Created the tables")
    assert machine.run(init).startswith("Nothing to do")


def test_compose_carries_an_order_from_its_first_lines_to_the_receiver(machine: Machine) -> None:
    tools, relay, receiver = (
        machine.fitted(start_of(f"compose.yaml {name}")) for name in ("tools", "relay", "receiver")
    )
    source, target, _ = compose()["services"]["receiver"]["volumes"][0].split(":")
    shutil.copy(DEPLOY / source, machine.home / Path(target).name)
    machine.run(machine.fitted(start_of("compose.yaml init")))
    put = next(arguments for arguments in commands_told() if arguments[0] == "put")
    machine.run(tools, *put)
    machine.run(relay, *relay.arguments, "--drain")
    with machine.running(receiver) as process:
        until(lambda: "order.paid order-7: {'amount': 12}" in machine.said, lambda: machine.said)
        process.send_signal(signal.SIGTERM)
        assert receiver.grace
        assert process.wait(receiver.grace.total_seconds()) == 0, machine.said


def test_the_steps_of_the_image_make_a_postroom_that_runs(tmp_path: Path) -> None:
    """The first stage without an engine: its files copied, its commands run, with folders of ours in place of its own."""
    folder, target = tmp_path / "build", tmp_path / "opt"
    folder.mkdir()
    (extras,) = (rest.removeprefix("EXTRAS=") for word, rest in dockerfile() if word == "ARG")
    for word, rest in dockerfile():
        if word == "COPY" and "--from" not in rest:
            *sources, to = rest.split()
            for source in map(ROOT.joinpath, sources):
                place = folder / to if source.is_dir() else folder / to / source.name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, place)
        if word == "RUN" and "pip" in rest:
            env = {**os.environ, "EXTRAS": extras, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            env.pop("PYTHONPATH", None)
            command = rest.replace("/opt/postroom", str(target))
            done = subprocess.run(
                ["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
    relay = [str(target / "bin/postroom"), "doctor", "--help"]
    assert "Usage" in subprocess.run(relay, env={}, capture_output=True, text=True, timeout=60, check=True).stdout
    drivers = (
        "import psycopg, psycopg_pool, confluent_kafka, aiohttp, postroom.stores.postgres, postroom.transports.kafka"
    )
    subprocess.run([str(target / "bin/python"), "-c", drivers], env={}, timeout=60, check=True)
