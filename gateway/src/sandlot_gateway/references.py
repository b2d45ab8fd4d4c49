"""What a name of a container image looks like."""

from __future__ import annotations

import re

_LONGEST = 512
# distribution's grammar: [host[:port]/]path[:tag][@digest]
_NAME = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?\Z"
)


def is_image_name(text: str) -> bool:
    """Whether a registry could have an image of that name."""
    return len(text) <= _LONGEST and _NAME.match(text) is not None
