"""Signatures as Standard Webhooks has them: HMAC-SHA256 over `id.timestamp.body`, one for each secret in use."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from postroom.errors import ConfigError

_PREFIX = "whsec_"


def read_secret(secret: str) -> bytes:
    """The bytes of a secret: `whsec_` and base64, or any other text as it is. ConfigError never repeats it."""
    encoded = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True) if secret.startswith(_PREFIX) else secret.encode()
    except (binascii.Error, ValueError):
        raise ConfigError(f"A webhook secret starts with {_PREFIX} but is no base64 after it: copy it again.") from None
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
