"""Which registries images may come from: by default all whose names are public, else those that the operator lists."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from .references import is_image_name

HUB = "docker.io"  # where a name without a registry leads
REGISTRY = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?\Z")

# Names that lead to the machine itself or into a network of one's own; the last are of RFC 6762 and 8375.
_INTERNAL = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "svc",
    "lan",
    "intranet",
    "corp",
    "home",
    "home.arpa",
)
# "127.1" and "0x7f.1" are addresses to a resolver, though no text of an address.
_LIKE_ADDRESS = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")


def registry_of(image: str) -> str | None:
    """`HOST[:PORT]` that the image is fetched from; None for what is not fetched (`host`, a path, an archive)."""
    name = image.removeprefix("docker://")
    if image == "host" or not is_image_name(name):
        return None
    first, slash, _ = name.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    return first.lower() if named else HUB


def refusal(image: str, *, allowed: Collection[str]) -> str | None:
    """Why an image is not to be fetched; None if it may be. `allowed`: `HOST[:PORT]` or `*.HOST`; empty: all public."""
    registry = registry_of(image)
    if registry is None:
        return None
    if allowed:
        if any(_matches(registry, entry.lower()) for entry in allowed):
            return None
        return f"the registry {registry!r} is not one of those that this server allows: {', '.join(sorted(allowed))}"
    if not _is_public(registry.partition(":")[0]):
        return f"the registry {registry!r} is not a public name or address; the operator can allow it (`registries`)"
    return None


def _matches(registry: str, entry: str) -> bool:
    return registry.endswith(entry[1:]) if entry.startswith("*.") else registry == entry


def _is_public(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
        return address.is_global and not address.is_multicast
    except ValueError:
        labels = host.split(".")
        if len(labels) == 1 or _LIKE_ADDRESS.match(labels[-1]):
            return False
        return not any(host.endswith(f".{name}") for name in _INTERNAL)
