"""Writing down: messages in the caller's own transaction."""

from postroom.outbox.outbox import Outbox

__all__ = ["Outbox"]
