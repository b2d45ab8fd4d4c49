"""Decides whether a GPU is of the type that a create names: "H100", "H100_80GB", "NVIDIA-H100-80GB-HBM3"."""

from __future__ import annotations

import re

_MEMORY = re.compile(r"\d+GI?B")


def is_type(model: str, wanted: str) -> bool:
    """Return whether the model, as the driver names it, has all words of the type.

    Words count as a whole: "L4" is no "L40S". A word may be several of the model's: "RTX4090". A size of memory counts
    only if the model's name has one.
    """
    has = _words(model)
    joined = {"".join(has[start:end]) for start in range(len(has)) for end in range(start + 1, len(has) + 1)}
    sized = any(map(_MEMORY.fullmatch, has))
    asked = [word for word in _words(wanted) if sized or not _MEMORY.fullmatch(word)]
    return bool(asked) and joined.issuperset(asked)


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Z0-9]+", text.upper())
