"""```python asgi: an application. It is served in a folder with a `shop.db` and a `mail.py`, takes an order by `POST
/orders/order-7?amount=12`, and the relay inside it carries the message to `mail.send`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.docs.blocks import Block, each
from tests.docs.running import ORDERS, PATIENCE, a_shop, environment, messages
from tests.servers.ports import free_port, listens

MAIL = """
def send(message):
    with open("mails.txt", "a") as mails:
        print(message.key, message.data["amount"], file=mails)
"""


@each("application")
def test_an_application_takes_an_order_and_its_relay_carries_the_message(block: Block, tmp_path: Path) -> None:
    shop = a_shop(tmp_path, ORDERS)
    (tmp_path / "mail.py").write_text(MAIL)
    (tmp_path / "app.py").write_text(block.code)
    with served(tmp_path) as url:
        post(f"{url}/orders/order-7?amount=12")
        until = time.monotonic() + PATIENCE
        while [record.status for record in messages(shop)] != ["published"]:
            assert time.monotonic() < until, messages(shop)
            time.sleep(0.1)
    assert (tmp_path / "mails.txt").read_text() == "order-7 12\n"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves `app:app`, and ends it as a deployment would."""
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]
    with subprocess.Popen(argv, cwd=folder, env=environment()) as process:
        try:
            until = time.monotonic() + PATIENCE
            while not listens(port):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            # Once it has shut down, uvicorn ends by the signal that it was given.
            assert process.wait(timeout=PATIENCE) == -signal.SIGTERM


def post(url: str) -> None:
    with urlopen(Request(url, method="POST"), timeout=PATIENCE) as answer:
        assert answer.status == 200
