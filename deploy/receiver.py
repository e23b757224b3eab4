"""The receiver of compose.yaml: it says what came. What it wrote with `tx` would be one commit with "this was handled"."""

from typing import Any

from postroom import Inbox, Message

inbox = Inbox("receiver")


@inbox.on("*")
async def say(message: Message, tx: Any) -> None:  # noqa: ARG001 - nothing is written here
    """Print the message. A print is no part of the commit: after a crash it may be seen twice."""
    print(f"{message.type} {message.key}: {message.data}", flush=True)
