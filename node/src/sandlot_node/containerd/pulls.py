"""Tells from containerd's errors what kind of failure a pull was, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Collection

from sandlot_node.failures import ImageError, Kind

_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_UNAUTHORIZED = re.compile(
    r"pull access denied|authorization failed|unauthorized|\b40[13] (?:Unauthorized|Forbidden)"
    r"|insufficient[_ ]scope|no basic auth credentials",
    re.IGNORECASE,
)
_PLATFORM = re.compile(r"no match for platform|no manifest for platform|no matching manifest", re.IGNORECASE)
_NOT_FOUND = re.compile(r"not found|404 Not Found|manifest unknown|name unknown", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"dial tcp|connection (?:refused|reset)|no such host|i/o timeout|TLS handshake|x509"
    r"|deadline exceeded|\b(?:429|5\d\d) [A-Z]|unexpected EOF|server misbehaving"
    r"|failed to fetch (?:oauth|anonymous) token",
    re.IGNORECASE,
)


def is_platform_error(details: str) -> bool:
    return _PLATFORM.search(details) is not None


def wrong_platform(reference: str, *, wanted: str, found: Collection[str]) -> ImageError:
    """Return the error for an image without a variant for this node."""
    has = ", ".join(sorted(found)) or "none that containerd could tell"
    return ImageError(
        Kind.WRONG_PLATFORM,
        f"the image {reference} has no variant for {wanted}, this node's platform; it has {has}. "
        "Build it for this platform, or use nodes of that one",
    )


def failure(reference: str, details: str, *, with_auth: bool) -> ImageError:
    """Return the error for what containerd said of a pull."""
    # The reason is at the end, after the names of the steps.
    reason = details[-500:]
    if _NO_SPACE.search(details):
        return ImageError(
            Kind.NO_SPACE,
            f"the node's disk is full: could not pull {reference} ({reason}). Release images, or enlarge the disk",
        )
    if _UNAUTHORIZED.search(details):
        what = "these credentials" if with_auth else "anonymous pulls"
        advice = "check them" if with_auth else "give credentials if the image is private"
        return ImageError(
            Kind.UNAUTHORIZED,
            f"the registry refused {what} for {reference}, or it has no such image; {advice} ({reason})",
        )
    if _UNREACHABLE.search(details):
        return ImageError(
            Kind.UNAVAILABLE,
            f"the registry of {reference} did not answer as it should ({reason}). Try again; if it goes on, "
            "check the node's network and its configuration of this registry",
        )
    if _NOT_FOUND.search(details):
        return ImageError(Kind.NOT_FOUND, f"the registry has no image {reference}; check its name and tag")
    return ImageError(Kind.FAILED, f"containerd could not pull {reference}: {reason}")
