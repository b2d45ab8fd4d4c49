"""Maps API keys to their tenants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeGuard

Role = Literal["use", "operate"]

_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


class BadKeys(ValueError):
    """Raised for invalid API keys; the message says which entry."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An owner of sandboxes and pools, as one of its keys describes it.

    `max_sandboxes` limits its live sandboxes in place of its quota; None: the quota holds. `role`: whether the key may change shared
    pools and those of other tenants.
    """

    name: str
    max_sandboxes: int | None = None
    role: Role = "use"

    @property
    def operates(self) -> bool:
        return self.role == "operate"

    def may_use(self, owner: str | None) -> bool:
        """Return whether its creates may use a pool of `owner` (None: shared)."""
        return owner is None or owner == self.name


_HEXADECIMAL = re.compile(r"e2b_((?:[0-9a-f]{2}){1,512})\Z")


def plain_key(text: str, keys: Keys) -> str:
    """Return the key that an SDK of E2B means: older ones send only `e2b_` and hexadecimal digits, here a key's bytes."""
    found = _HEXADECIMAL.match(text)
    return text if found is None or keys.find(text) else bytes.fromhex(found[1]).decode("utf-8", "replace")


def is_tenant(text: str) -> bool:
    return _TENANT.match(text) is not None


class Keys:
    """Implements data.routes.ApiKeys. Stores digests only, so that a memory dump shows no keys."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Parse `entries`: `key[:tenant[:max_sandboxes[:role]]]`. Raises BadKeys.

        A bare key is of tenant "default" with the role operate; a key with a tenant has the role use by default."""
        self._tenants: dict[bytes, Tenant] = {}
        self.replace(entries)

    def replace(self, entries: Iterable[str]) -> None:
        """Replace all keys. Raises BadKeys, and then changes nothing."""
        tenants: dict[bytes, Tenant] = {}
        for number, entry in enumerate(entries, 1):
            key, tenant = _parse(entry, number)
            tenants[_digest(key)] = tenant
        self._tenants = tenants

    @staticmethod
    def entries(inline: str | None) -> list[str]:
        """Split the setting's form: `key:tenant,key2:tenant2`."""
        found = [entry.strip() for entry in (inline or "").split(",")]
        return [entry for entry in found if entry]

    def __len__(self) -> int:
        return len(self._tenants)

    def tenants(self) -> set[str]:
        """Return the names of all tenants that have a key."""
        return {tenant.name for tenant in self._tenants.values()}

    def tenant(self, key: str) -> str | None:
        found = self.find(key)
        return found.name if found is not None else None

    def find(self, key: str) -> Tenant | None:
        # By digest, so that the time of the lookup reveals nothing about a key.
        return self._tenants.get(_digest(key))


def _parse(entry: str, number: int) -> tuple[str, Tenant]:
    key, *rest = entry.split(":")
    if len(rest) > 3:
        raise BadKeys(f"API key entry {number}: more fields than KEY:TENANT:MAX_SANDBOXES:ROLE")
    given, limit, role = rest + [""] * (3 - len(rest))
    name = given or "default"
    if not key or not key.isascii() or any(c.isspace() for c in key):
        raise BadKeys(f"API key entry {number}: the key must be printable ASCII without spaces")
    if not is_tenant(name):
        raise BadKeys(f"API key entry {number}: the tenant must match [A-Za-z0-9._-]{{1,64}}")
    if limit and not limit.isdigit():
        raise BadKeys(f"API key entry {number}: the limit of sandboxes must be a number")
    role = role or ("use" if given else "operate")
    if not _is_role(role):
        raise BadKeys(f"API key entry {number}: the role must be `use` or `operate`")
    return key, Tenant(name, int(limit) if limit else None, role)


def _is_role(text: str) -> TypeGuard[Role]:
    return text in ("use", "operate")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
