"""A gate before a server: what comes through it can be cut off, and let through again, on the same port.

For servers that keep what they have in memory, and so cannot be killed and started again without losing it.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.servers.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 65_536


class Gate:
    """Carries connections to a port on loopback, while it is open."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self.delay = 0.0
        """Seconds that each new connection waits, so that a test can strike in the middle of something."""
        self._port = 0
        self._listener: socket.socket | None = None
        self._through: set[socket.socket] = set()
        self._is_silent = threading.Event()
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return self._port

    def open(self) -> None:
        """Let through; where it was, if it was open before."""
        listener = socket.create_server((LOOPBACK, self._port), backlog=128)
        self._port, self._listener = listener.getsockname()[1], listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and take no new one."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            for each in self._through:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Take connections and what comes on them, and answer nothing: requests arrive, the answers are lost."""
        self._is_silent.set()
        try:
            yield
        finally:
            self._is_silent.clear()
            port = self._port
            self.cut()
            self._port = port
            self.open()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        time.sleep(self.delay)
        with near, suppress(OSError), socket.create_connection((LOOPBACK, self._upstream)) as far:
            with self._lock:
                self._through |= {near, far}
            try:
                self._pump(near, far)
            finally:
                with self._lock:
                    self._through -= {near, far}

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    if not (piece := key.fileobj.recv(PIECE)):  # type: ignore[union-attr]  # they are sockets
                        if key.fileobj is far and self._is_silent.is_set():
                            ready.unregister(far)  # the server has said all: nobody hears it
                            continue
                        return
                    if not (key.fileobj is far and self._is_silent.is_set()):
                        key.data.sendall(piece)


@contextmanager
def gate_to(port: int) -> Iterator[Gate]:
    """A gate to this port, open; shut for good afterwards."""
    gate = Gate(port)
    gate.open()
    try:
        yield gate
    finally:
        gate.cut()
