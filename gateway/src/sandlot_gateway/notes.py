"""Converts a backend's notes to the objects that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sandlot_contract.ids import SandboxId

from .core.gateways import Notes

T = TypeVar("T")


def follow(
    notes: Notes,
    *,
    read: Callable[[SandboxId, str, Any], T | None],
    told: Callable[[SandboxId, list[T]], None],
) -> None:
    """Call `told` with all objects of a sandbox each time that its notes change.

    `read` makes an object of a sandbox's id, a note's key and its document; None for a note of another kind.
    """

    def changed(sandbox_id: SandboxId, found: dict[str, Any]) -> None:
        made = (read(sandbox_id, key, document) for key, document in found.items())
        told(sandbox_id, [each for each in made if each is not None])

    notes.subscribe(changed)
