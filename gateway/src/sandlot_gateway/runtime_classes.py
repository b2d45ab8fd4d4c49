"""Decides which RuntimeClasses a pool may get over the API: those that the operator lists, as others may isolate less."""

from __future__ import annotations

import re
from collections.abc import Collection

# What Kubernetes accepts as the name of a RuntimeClass, at most 253 characters.
PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
MOST = 253
_NAME = re.compile(PATTERN)


def is_name(text: str) -> bool:
    return len(text) <= MOST and _NAME.fullmatch(text) is not None


def refusal(name: str, *, allowed: Collection[str]) -> str | None:
    """Return why no request may set this RuntimeClass, or None if one may."""
    if name in allowed:
        return None
    listed = f"use one of {', '.join(sorted(allowed))}, or leave it out" if allowed else "leave it out"
    return f"{name!r} is not allowed here: {listed}; the operator can allow more (`runtime_classes`)"
