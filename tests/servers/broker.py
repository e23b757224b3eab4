"""A Kafka broker of our own: one node that is broker and controller, made, run, killed and started again.

It writes what it acknowledges into the page cache, which a SIGKILL of the broker does not touch. It makes no topic by itself.
Everybody may do everything on the plain listener; on the other one a password is asked for, and ACLs count.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers import guard, maven, start, unprivileged
from tests.servers.freezing import child_of, frozen
from tests.servers.guard import Command
from tests.servers.model import Found, NotHere, Place
from tests.servers.ports import LOOPBACK, free_port, listens
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "4.3.0"
ARTIFACTS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
LOCKED = "locked"
LOCKED_PASSWORD = "the-right-password"
JVM = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
LARGEST = 1_048_588
"""The largest batch that it takes, as brokers do unless told otherwise."""

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "listener.security.protocol.map": "PLAIN:PLAINTEXT,LOCKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.locked.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{LOCKED}="{LOCKED_PASSWORD}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "message.max.bytes": str(LARGEST),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "2097152",
    # A broker that was killed may register again only when its old session has run out.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True)
class Ports:
    """Where it listens. Drawn once, so that it comes back where it was."""

    plain: int
    locked: int
    controller: int


class Broker:
    """One broker and its data, under a keeper in `place`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._java = shutil.which("java")
        self._home = unprivileged.private(place.directory / "home")
        self._cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        self._ports = Ports(0, 0, 0)

    @property
    def url(self) -> str:
        return f"kafka://{LOOPBACK}:{self._ports.plain}"

    @property
    def locked_url(self) -> str:
        """Where a user and a password are asked for."""
        return f"kafka://{LOOPBACK}:{self._ports.locked}"

    def start(self) -> Found:
        """On new ports, with new data."""
        guard.serve(self._place, self._command, self._ready, patience=60)
        return Found(self.url, VERSION)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        guard.stop(self._place.directory)

    def start_again(self) -> None:
        """Where it was, with the data that it had."""
        guard.resume(self._place, self._argv(), self._ports.plain, self._ready, patience=60)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """It is stopped for a while: connections stay, and nothing is answered."""
        with frozen(child_of(self._place.directory)):
            yield

    def _command(self, port: int) -> Command:
        self._ports = Ports(port, free_port(), free_port())
        self._write("data/meta.properties", {"version": "1", "cluster.id": self._cluster, "node.id": "1"})
        self._write("server.properties", SETTINGS | self._addresses())
        return self._argv()

    def _argv(self) -> Command:
        if self._java is None:
            raise NotHere("Java is not installed.")
        classes = f"{maven.jars(f'kafka-{VERSION}', *ARTIFACTS)}/*"
        argv: list[str | Path] = [
            self._java,
            *JVM,
            LOGGING,
            "-cp",
            classes,
            "kafka.Kafka",
            self._home / "server.properties",
        ]
        env = unprivileged.environment(HOME=os.fspath(self._home))
        return Command(argv, self._home, env, signal.SIGKILL)  # a broker worth testing with survives it

    def _addresses(self) -> dict[str, str]:
        ports = self._ports
        open_to_clients = f"PLAIN://{LOOPBACK}:{ports.plain},LOCKED://{LOOPBACK}:{ports.locked}"
        return {
            "listeners": f"{open_to_clients},CONTROLLER://{LOOPBACK}:{ports.controller}",
            "advertised.listeners": open_to_clients,
            "controller.quorum.voters": f"1@{LOOPBACK}:{ports.controller}",
            "log.dirs": os.fspath(self._home / "data"),
        }

    def _write(self, name: str, settings: dict[str, str]) -> None:
        path = self._home / name
        if not path.parent.exists():
            unprivileged.private(path.parent)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        unprivileged.give(path)

    def _ready(self, port: int) -> str | None:
        """Its version once it answers; another that took the port has another cluster id."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if not listens(port):
            return None
        try:
            answer = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return None
        return VERSION if str(answer.cluster_id) == self._cluster else None


@contextmanager
def broker_of_my_own() -> Iterator[Broker]:
    """A broker for one test, which may kill it and start it again. It ends with the test, or with the run."""
    run = current()
    key = f"kafka-own-{os.getpid()}-{secrets.token_hex(4)}"
    directory = run.directory / key
    directory.mkdir()
    directory.chmod(0o711)
    broker = Broker(Place(directory, run.owner, start))
    try:
        broker.start()
        yield broker
    finally:
        run.clean(key)
