"""The instance token of a pod, made from the master key exactly as the gateway makes it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

from sandlot_controller.settings import BadSettings


class InstanceTokens:
    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise BadSettings("SANDLOT_KEY_FILE: the master key must have at least 16 bytes")
        self._key = key

    @classmethod
    def from_file(cls, path: Path) -> InstanceTokens:
        """Raises BadSettings."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise BadSettings(f"SANDLOT_KEY_FILE: {error}") from error

    def instance(self, instance_id: str) -> str:
        """Opens end and state of that sidecar, and signs what it says to the gateway."""
        # Each part has its length before it: without, ("ab", "c") and ("a", "bc") would be one token.
        parts = (b"instance", instance_id.encode())
        message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        mac = hmac.digest(self._key, message, hashlib.sha256)
        return "sit_" + base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
