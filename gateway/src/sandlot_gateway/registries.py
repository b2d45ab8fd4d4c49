"""Decides which registries images may come from, also for the local backend's other forms of image names."""

from __future__ import annotations

import re
from collections.abc import Collection

from sandlot_contract import images

REGISTRY = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?\Z")


def refusal(image: str, *, allowed: Collection[str]) -> str | None:
    """Return why an image may not be pulled, or None if it may or needs no pull (`host`, a path, an archive).

    `allowed`: `HOST[:PORT]` or `*.HOST`; empty: all public ones.
    """
    name = image.removeprefix("docker://")
    if image == "host" or not images.is_image_name(name):
        return None
    return images.refusal(name, allowed=allowed)
