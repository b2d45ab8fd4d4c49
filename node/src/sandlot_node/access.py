"""Records who has proven that they may pull an image, and which image a name meant then.

Plain data, without a clock or I/O. Nothing of it is written to disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .images import ImageId

EVERYONE = None
MOST_PROOFS = 1000  # of an image; any number of names can mean one image

_Key = tuple[str, str | None]  # name and tenant


@dataclass(frozen=True)
class _Proof:
    image_id: ImageId
    until: float


class Access:
    """Proofs by image name and tenant. A pull without credentials is a proof for every tenant.

    Such a proof of a name with a digest never expires, since what was public once stays known; that of a tag lasts
    `tag_seconds`, after which the tag is asked for again; that of a tenant lasts `tenant_seconds`. An image has at
    most MOST_PROOFS; then the oldest is forgotten, so that the registry is asked again.
    """

    def __init__(self, *, tag_seconds: float, tenant_seconds: float) -> None:
        self._tag_seconds = tag_seconds
        self._tenant_seconds = tenant_seconds
        self._proofs: dict[_Key, _Proof] = {}
        self._keys: dict[ImageId, dict[_Key, None]] = {}  # of each image's proofs, the oldest first

    def prove(self, name: str, tenant: str | None, image_id: ImageId, *, now: float) -> None:
        """Record a pull that succeeded: with the tenant's credentials, or with none (EVERYONE)."""
        seconds = math.inf if "@" in name else self._tag_seconds
        if tenant is not EVERYONE:
            seconds = min(seconds, self._tenant_seconds)
        self.deny(name, tenant)
        self._proofs[name, tenant] = _Proof(image_id, now + seconds)
        keys = self._keys.setdefault(image_id, {})
        keys[name, tenant] = None
        if len(keys) > MOST_PROOFS:
            self.deny(*next(iter(keys)))

    def find(self, name: str, tenant: str | None, *, now: float) -> ImageId | None:
        """Return the image that this tenant may have by this name without asking the registry again."""
        for owner in (EVERYONE, tenant):
            proof = self._proofs.get((name, owner))
            if proof is not None and now < proof.until:
                return proof.image_id
        return None

    def deny(self, name: str, tenant: str | None) -> None:
        """Forget a proof, since the registry refused or no longer has the image."""
        if (proof := self._proofs.pop((name, tenant), None)) is not None:
            keys = self._keys[proof.image_id]
            del keys[name, tenant]
            if not keys:
                del self._keys[proof.image_id]

    def expire(self, *, now: float) -> None:
        """Forget the proofs that have expired."""
        for key in [key for key, proof in self._proofs.items() if proof.until <= now]:
            self.deny(*key)

    def forget(self, image_id: ImageId) -> None:
        """Forget all proofs of an image that the node no longer has."""
        for key in self._keys.pop(image_id, {}):
            del self._proofs[key]
