"""A Kafka of three nodes for one test, each of them broker and controller, which can be killed and started again one by one."""

from __future__ import annotations

import os
import secrets
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.servers import guard, start
from tests.servers.broker import SETTINGS, Broker, Ports
from tests.servers.model import Place
from tests.servers.ports import LOOPBACK, free_port
from tests.servers.run import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NODES = 3
PATIENCE = 120


class Node(Broker):
    """One of the three."""

    def __init__(self, place: Place, number: int, cluster: str, ports: Sequence[Ports]) -> None:
        super().__init__(place)
        self.number, self._cluster, self._ports = number, cluster, ports[number - 1]
        self._voters = ",".join(f"{n}@{LOOPBACK}:{each.controller}" for n, each in enumerate(ports, 1))

    def start_first(self) -> None:
        """With new data. It answers when a second one is there."""
        self._write("data/meta.properties", {"version": "1", "cluster.id": self._cluster, "node.id": str(self.number)})
        own = {"node.id": str(self.number), "controller.quorum.voters": self._voters}
        self._write("server.properties", SETTINGS | self._addresses() | own)
        self.start_again()

    def start_again(self) -> None:
        guard.resume(self._place, self._argv(), self._ports.plain, self._ready, patience=PATIENCE)


class Cluster:
    """All three."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        servers = ",".join(node.url.partition("://")[2] for node in self.nodes)
        return f"kafka://{servers}"

    def make_topic(self, name: str, *, in_sync: int) -> None:
        """On all three, with one partition led by each; *in_sync* of them must have a message before it is confirmed."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.url.partition("://")[2], "log_level": 0})
        assignment = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        config = {"min.insync.replicas": str(in_sync)}
        topic = NewTopic(name, num_partitions=NODES, replica_assignment=assignment, config=config)
        admin.create_topics([topic])[name].result(PATIENCE)


@contextmanager
def cluster_of_my_own() -> Iterator[Cluster]:
    """Three nodes for one test. They end with the test, or with the run."""
    run = current()
    cluster = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    ports = [Ports(free_port(), free_port(), free_port()) for _ in range(NODES)]
    keys = [f"kafka-own-{os.getpid()}-{secrets.token_hex(4)}" for _ in range(NODES)]
    nodes: list[Node] = []
    for number, key in enumerate(keys, 1):
        directory = run.directory / key
        directory.mkdir()
        directory.chmod(0o711)
        nodes.append(Node(Place(directory, run.owner, start), number, cluster, ports))
    try:
        with ThreadPoolExecutor(NODES) as together:
            list(together.map(Node.start_first, nodes))
        yield Cluster(nodes)
    finally:
        for key in keys:
            run.clean(key)
