"""Signatures as Standard Webhooks has them: HMAC-SHA256 over `id.timestamp.body`, one for each secret in use."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import timedelta

from postroom.errors import ConfigError

TOLERANCE = timedelta(minutes=5)
"""How far the sender's clock may be from ours. What is older may be a copy that somebody kept."""
_PREFIX = "whsec_"
_VERSION = "v1,"


def read_secret(secret: str) -> bytes:
    """The bytes of a secret: `whsec_` and base64, or any other text as it is. ConfigError never repeats it."""
    encoded = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True) if secret.startswith(_PREFIX) else secret.encode()
    except (binascii.Error, ValueError):
        raise ConfigError(
            f"A webhook secret starts with {_PREFIX} but is not base64 after it: copy it again."
        ) from None
    if not key:
        raise ConfigError(f"A webhook secret is empty: give one like {_PREFIX}<24 to 64 random bytes in base64>.")
    return key


def sign(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove who sent this body, and when; a receiver may know any one of the keys."""
    content = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(key, content, hashlib.sha256) for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }


def unproven(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    """Why these headers (names in lower case) do not prove who sent this body; None when they do, by any of the keys."""
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signatures = [each for each in headers.get("webhook-signature", "").split() if each.startswith(_VERSION)]
    if not message_id or not timestamp or not signatures:
        return (
            "It is not signed: webhook-id, webhook-timestamp and a webhook-signature that begins with v1, are needed."
        )
    # Only what `sign` would write: int() also takes signs, spaces, underscores and digits of other scripts.
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= len(str(now)) + 1):
        return "Its webhook-timestamp is not a number of seconds."
    if abs(now - int(timestamp)) > TOLERANCE.total_seconds():
        return "Its webhook-timestamp is more than five minutes from now: send it again, and compare the clocks."
    wanted = sign(keys, message_id, int(timestamp), body)["webhook-signature"].split()
    # All of them are compared, each in constant time.
    hits = [hmac.compare_digest(ours.encode(), theirs.encode()) for ours in wanted for theirs in signatures]
    return None if any(hits) else "None of its signatures was made with a secret that is known here."
