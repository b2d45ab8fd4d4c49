"""Signs a webhook as the Standard Webhooks specification has it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable


def signed(body: bytes, *, webhook_id: str, at: int, secrets: Iterable[bytes]) -> dict[str, str]:
    """Return the headers of a webhook, with a signature by each secret. `at`: Unix seconds of this attempt."""
    content = f"{webhook_id}.{at}.".encode() + body
    signatures = [
        base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets
    ]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }
