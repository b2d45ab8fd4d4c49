"""References to secrets that the operator keeps: what a create names, and the interface of the backend that reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

# Names as Kubernetes has them, also for the local backend's directories. None is `.`, `..`, or has a `/`.
SECRET_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
SECRET_KEY = r"^\.?[A-Za-z0-9_-][A-Za-z0-9._-]*$"
NAME_MAX = 253
REFS_MAX = 64

NOT_CONFIGURED = (
    "not configured: this gateway reads no secrets by reference; set --secrets-dir (local backend) or"
    " --secrets-namespace (Kubernetes; chart value gateway.secretRefs.enabled)"
)


class SecretRef(msgspec.Struct, frozen=True):
    """One key of a secret."""

    secret: str
    key: str


class SecretSource(Protocol):
    """Reads secrets for one tenant at a time, anew for each create, so that a create sees a value that has changed."""

    async def read(self, secret: str, keys: Collection[str], *, tenant: str) -> Mapping[str, bytes]:
        """Return the values of those of these keys that exist in a secret which this tenant may use.

        Nothing tells a missing secret from one that the tenant may not use. Raises Unavailable.
        """
        ...
