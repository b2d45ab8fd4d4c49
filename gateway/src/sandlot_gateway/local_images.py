"""Decides which images besides registries' a tenant may use on the local backend: those that the operator lists.

Unlisted images all get the same error: different ones would reveal which files exist.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from sandlot_contract.images import is_image_name

HOST = "host"
_PREFIXES = ("oci-archive:", "oci:")  # before a path, even if the whole looks like a name with a tag


def is_entry(text: str) -> bool:
    """Return whether an entry of the operator's list is valid: `host`, or an absolute path, which covers all below."""
    return text == HOST or (text.startswith("/") and ".." not in PurePosixPath(text).parts)


def refusal(image: str, *, allowed: Collection[str]) -> str | None:
    """Return why a tenant may not use an image, or None if it may; examines the text only."""
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
    # `..` may lead out of a listed directory, also through a symbolic link in it.
    if not path.startswith("/") or ".." in PurePosixPath(path).parts:
        return False
    return any(PurePosixPath(path).is_relative_to(entry) for entry in allowed if entry != HOST)
