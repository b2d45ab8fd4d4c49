"""Which registries images may come from: `sandlot_contract.images` for the local backend's ways to name an image, too."""

from __future__ import annotations

import re
from collections.abc import Collection

from sandlot_contract import images

REGISTRY = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?\Z")


def refusal(image: str, *, allowed: Collection[str]) -> str | None:
    """Why an image is not to be fetched; None if it may be, and for what is not fetched (`host`, a path, an archive).

    `allowed`: `HOST[:PORT]` or `*.HOST`; empty: all public.
    """
    name = image.removeprefix("docker://")
    if image == "host" or not images.is_image_name(name):
        return None
    return images.refusal(name, allowed=allowed)
