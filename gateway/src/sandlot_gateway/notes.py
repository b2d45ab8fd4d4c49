"""Notes as what they stand for: whoever keeps something in them hears of that something, not of documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sandlot_contract.ids import SandboxId

from .core.backend import Notes

T = TypeVar("T")


def follow(
    notes: Notes,
    *,
    read: Callable[[SandboxId, str, Any], T | None],
    told: Callable[[SandboxId, list[T]], None],
) -> None:
    """`told` hears of all that a sandbox's notes hold, each time that they have changed.

    `read` makes it of a sandbox's id, a note's key and its document; None where the note is somebody else's.
    """

    def changed(sandbox_id: SandboxId, found: dict[str, Any]) -> None:
        made = (read(sandbox_id, key, document) for key, document in found.items())
        told(sandbox_id, [each for each in made if each is not None])

    notes.subscribe(changed)
