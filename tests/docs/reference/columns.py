"""What the columns hold: the same in every store. The generated reference reads this; a test compares it with the tables."""

from __future__ import annotations

OUTBOX = {
    "seq": "The order of writing. Never used again.",
    "id": "The message's id, a UUIDv7: the same through every retry.",
    "hash": "CRC-32 of the key, or of the id without one; set by the first claim on rows that a stranger wrote.",
    "lane": "The slice of the keys that it belongs to.",
    "type": "What happened: `order.paid`. Routes choose by it.",
    "key": "The ordering key. NULL: no order is kept.",
    "aggregate": "The kind of thing that the key names.",
    "topic": "Where it goes. NULL: the route decides.",
    "payload": "The body, where it is JSON.",
    "body": "The body, where it is anything else.",
    "content_type": "What the body is.",
    "headers": "The message's own headers, as JSON.",
    "correlation_id": "What the message belongs to, such as a request.",
    "causation_id": "The message that caused it.",
    "traceparent": "W3C trace context.",
    "idempotency_key": "A name for the effect; unique.",
    "digest": "A fingerprint of type and body, where there is an idempotency key.",
    "time": "When it happened, as its writer says.",
    "expires_at": "Past this moment it is not sent any more.",
    "created_at": "When the row was written.",
    "attempts": "Tries made.",
    "due_at": "It is not sent earlier: as it was put, or after a failure.",
    "shelf": "Why an open message is out of the line: `key`, behind its key's held head; `time`, not due yet. On a dead "
    "one, `park`: it holds its key.",
    "lost": "How often it was in flight when a relay died or lost its lease. Such a one travels with its like, then alone.",
    "tried_at": "When it was last tried.",
    "settled_at": "When it was published, buried, expired or discarded. NULL: it is open.",
    "outcome": "`published`, `dead`, `expired` or `discarded`. NULL: it is open.",
    "last_error_code": "The code of its last error.",
    "last_error": "The words of its last error.",
    "in_line": "The lane, while it is open and may go: for an index that holds nothing else.",
    "aside": "The key, while it is on a shelf: for an index that holds nothing else.",
    "later": "The lane, while it is not due yet: for an index that holds nothing else.",
}
LANE = {
    "lane": "Its number.",
    "owner": "The relay that has it. NULL: it is free.",
    "epoch": "Grows with every taking: what an earlier owner still wants is refused by it.",
    "lease_until": "How long the owner has it without a word.",
}
CLAIM = {
    "id": "Never used again: a settle deletes it, or changes nothing.",
    "lane": "The lane; one claim each.",
    "epoch": "The lane's, when it was claimed.",
    "owner": "The relay that has the messages in flight.",
    "seqs": "Which messages.",
    "claimed_at": "When.",
    "alone": "Nothing else was in flight in that relay's process.",
}
HOLD = {
    "key": "The key that waits.",
    "lane": "Its lane.",
    "until": "When its failed head is tried again. NULL: a dead message parks it, and a person decides.",
}
RELAY = {
    "owner": "The relay's own name, another for every start.",
    "name": "What a person calls it.",
    "host": "The machine that it runs on.",
    "pid": "Its process there.",
    "version": "Its version of Postroom.",
    "process": "Tells whether that process is still there, on that machine. Empty: unknown.",
    "seen_at": "When it was last heard of.",
}
INBOX = {
    "consumer": "The inbox's name.",
    "source": "Who sent it: CloudEvents' source, within which an id is unique. A long one ends in its hash.",
    "message_id": "The message's id.",
    "outcome": "`handled`, `failing` (tried, waiting for its next try), `dead` (given up) or `requeued`.",
    "attempts": "Tries made: those that failed, and the one that worked.",
    "at": "When that was last written. The row is forgotten by it, when the retention is over.",
    "token": "Who wrote it last: MySQL has no `RETURNING`.",
    "last_error_code": "The code of its last error.",
    "last_error": "The words of its last error.",
}
INBOX_DEAD = {
    "id": "The order in which they died.",
    "consumer": "The inbox's name.",
    "source": "Who sent it: CloudEvents' source, within which an id is unique. A long one ends in its hash.",
    "message_id": "The message's id.",
    "type": "The message's type.",
    "key": "The message's key.",
    "topic": "Where it came from, as the broker calls it.",
    "attributes": "CloudEvents' attributes, as JSON.",
    "headers": "The message's own headers, as JSON.",
    "body": "The body, byte for byte.",
    "attempts": "Tries made.",
    "code": "Why it was given up, by its code.",
    "error": "And in the handler's words.",
    "dead_at": "When it was given up.",
    "requeued_at": "When a person requeued it. NULL: it was not requeued.",
}
TABLES = {
    "outbox": OUTBOX,
    "outbox_lane": LANE,
    "outbox_claim": CLAIM,
    "outbox_hold": HOLD,
    "outbox_relay": RELAY,
    "inbox": INBOX,
    "inbox_dead": INBOX_DEAD,
}
MESSAGES = {
    "status": "`pending`, `sending`, `failed`, `published`, `dead`, `expired` or `discarded`.",
    "owner": "The relay that has it in flight.",
    "locked_at": "When that relay claimed it.",
    "parked": "Whether its key waits for a person: it is dead, or waits behind a dead one.",
    "updated_at": "When it was last settled, tried or written.",
    "published_at": "When it was published.",
}
"""What the view `outbox_messages` has besides columns of `outbox`."""
