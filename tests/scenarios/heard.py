"""A function for `local://tests.scenarios.heard:hear` that notes what it was given."""

from __future__ import annotations

import queue

from postroom.message import Message

HEARD: queue.SimpleQueue[str] = queue.SimpleQueue()


def hear(message: Message) -> None:
    HEARD.put(message.type)
