"""Parses and formats sizes such as 1GiB."""

from __future__ import annotations

import re

_FACTORS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 10**3,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 10**6,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gb": 10**9,
    "gib": 1 << 30,
    "t": 1 << 40,
    "tb": 10**12,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_size(value: int | float | str, *, name: str = "size") -> int:
    """Parse `1073741824`, `"1GiB"`, `"512m"` or `"1.5 GB"` to bytes. Raises ValueError that names the argument."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise ValueError(f"{name}: not a size: {value!r} (examples: 1GiB, 512MiB, 1073741824)")
        value = float(match[1]) * factor
    size = round(value)
    if size <= 0:
        raise ValueError(f"{name}: must be positive, not {value!r}")
    return size


def show_size(value: float) -> str:
    """Format a size in bytes for people, such as 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def show_gpus(count: int, kind: str | None) -> str:
    """Format a number of GPUs with their type for people, such as `2 H100`; without GPUs empty."""
    return f"{count} {kind or ''}".rstrip() if count else ""
