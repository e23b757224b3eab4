"""```python server=http received: a whole program that receives webhooks at port 8080, and prints the type and key of each."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.docs.blocks import Block, each
from tests.docs.places import send
from tests.docs.running import PATIENCE
from tests.servers.ports import free_port

from postroom.contracts.transport import Outcome, Sent, Unavailable


@each("webhooks")
def test_a_program_that_receives_webhooks_answers_and_prints_what_was_sent(block: Block, tmp_path: Path) -> None:
    port = str(free_port())
    (secret,) = set(re.findall(r"whsec_[\w+/=]+", block.code))
    code = [sys.executable, "-W", "error", "-c", block.code.replace("8080", port)]
    with subprocess.Popen(code, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
        outcome = sent_once_it_answers(f"http://127.0.0.1:{port}/hooks", secret, receiver)
        receiver.terminate()
        said, wrong = receiver.communicate(timeout=30)
    assert outcome == Sent(204), wrong
    assert said == "order.paid order-7\n"


def sent_once_it_answers(url: str, secret: str, receiver: subprocess.Popen[str]) -> Outcome:
    deadline = time.monotonic() + PATIENCE / 2
    while True:
        outcome = send(url, secrets=(secret,))
        if not isinstance(outcome, Unavailable) or receiver.poll() is not None or time.monotonic() > deadline:
            return outcome
        time.sleep(0.1)
