"""Which images a tenant may name on the local backend beside those of registries: the operator lists them.

What is not listed gets one answer, whatever the machine has: errors that differ would tell which files exist.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from sandlot_contract.images import is_image_name

HOST = "host"
_PREFIXES = ("oci-archive:", "oci:")  # before a path, also where the whole looks like a name with a tag


def is_entry(text: str) -> bool:
    """Whether an operator's list may have it: `host`, or an absolute path, which stands for all below it too."""
    return text == HOST or (text.startswith("/") and ".." not in PurePosixPath(text).parts)


def refusal(image: str, *, allowed: Collection[str]) -> str | None:
    """Why a tenant may not name this image; None if it may. Looks at the text alone."""
    is_path = image == HOST or image.startswith(_PREFIXES)
    if not is_path and is_image_name(image.removeprefix("docker://")):
        return None
    if _is_listed(image, allowed):
        return None
    listed = "".join(f", {entry}" if entry == HOST else f", a path below {entry}" for entry in allowed)
    return (
        f"{image[:200]!r} is not allowed here. Name an image of a registry ([HOST[:PORT]/]NAME[:TAG][@DIGEST]){listed};"
        " the operator can allow more (`local_images`)"
    )


def _is_listed(image: str, allowed: Collection[str]) -> bool:
    if image == HOST:
        return HOST in allowed
    path = image
    for prefix in _PREFIXES:
        if image.startswith(prefix):
            path = image.removeprefix(prefix)
            untagged, colon, tag = path.rpartition(":")
            if colon and "/" not in tag:
                path = untagged
            break
    # `..` may lead out of a listed directory, also by way of a link in it.
    if not path.startswith("/") or ".." in PurePosixPath(path).parts:
        return False
    return any(PurePosixPath(path).is_relative_to(entry) for entry in allowed if entry != HOST)
