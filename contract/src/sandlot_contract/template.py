"""Defines the template of an instance, and the key by which equal ones are recognised."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

# Default limit of a sandbox's processes. At 4,096 a fork bomb kept two cores at a load of 1,000 for two minutes after
# its sandbox was deleted; builds and test suites stay well below 1,024.
PIDS = 1024


@dataclass(frozen=True, slots=True)
class Template:
    """The properties that make two instances interchangeable; the rest (environment, network, ...) is in the claim."""

    image: str
    cpu: float = 1.0  # cores
    memory: int = 1 << 30  # bytes
    disk: int = 5 << 30  # bytes
    pids: int = PIDS
    gpu_count: int = 0
    gpu_type: str | None = None
    runtime_class: str | None = None

    @property
    def key(self) -> str:
        """Return a short stable name; equal templates have equal keys."""
        return key_of(getattr(self, name) for name in FIELDS)

    @property
    def size_class(self) -> str:
        """Return a short stable name, equal for templates that differ at most in the image."""
        return key_of(getattr(self, name) for name in FIELDS if name != "image")


FIELDS = tuple(field.name for field in fields(Template))


def key_of(values: Iterable[object]) -> str:
    """Return 16 hexadecimal digits of values of FIELDS, in their order."""
    return hashlib.sha256("|".join(map(str, values)).encode()).hexdigest()[:16]
