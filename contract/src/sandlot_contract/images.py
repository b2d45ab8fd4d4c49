"""Parses names of container images, and checks their registries: by default all public ones are allowed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

HUB = "docker.io"  # registry of names without one
_LONGEST = 512
# distribution's grammar: [host[:port]/]path[:tag][@digest]
_NAME = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?\Z"
)

# Host names of the machine itself or of private networks; the last are from RFC 6762 and 8375.
# The chart's _pools.tpl has the same ones.
INTERNAL = (
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
# Resolvers accept "127.1" and "0x7f.1" as addresses; the ipaddress module does not.
_LIKE_ADDRESS = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")


def is_image_name(text: str) -> bool:
    """Return whether the text is a valid image reference."""
    return len(text) <= _LONGEST and _NAME.match(text) is not None


def registry_of(name: str) -> str:
    """Return the registry, `HOST[:PORT]`, that a node pulls the image from."""
    first, slash, _ = name.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    return first.lower() if named else HUB


def refusal(name: str, *, allowed: Collection[str]) -> str | None:
    """Return why an image may not be pulled, or None. `allowed`: `HOST[:PORT]` or `*.HOST`; empty: all public ones."""
    if not is_image_name(name):
        return f"invalid image reference {name!r}: write [HOST[:PORT]/]NAME[:TAG][@DIGEST]"
    registry = registry_of(name)
    if allowed:
        if any(_matches(registry, entry.lower()) for entry in allowed):
            return None
        return f"the registry {registry!r} is not allowed; this server allows {', '.join(sorted(allowed))}"
    if not _is_public(registry.partition(":")[0]):
        return f"the registry {registry!r} is not a public host; the operator can allow it (`registries`)"
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
        return not any(host.endswith(f".{name}") for name in INTERNAL)
