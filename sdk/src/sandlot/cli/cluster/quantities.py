"""Kubernetes' quantities, such as 500m and 2Gi, as numbers."""

from __future__ import annotations

import re

_FACTORS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)
}


def quantity(text: str) -> float | None:
    """Return the number of cores, bytes or things; None if the text is no quantity."""
    found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", text)
    if found is None or found[2] not in _FACTORS:
        return None
    try:
        return float(found[1]) * _FACTORS[found[2]]
    except ValueError:
        return None
