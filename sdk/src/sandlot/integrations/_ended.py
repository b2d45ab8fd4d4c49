"""Ends the sandbox of an object that its framework has dropped, or still has when the process ends."""

from __future__ import annotations

import contextlib

from sandlot._sync.sandbox import Sandbox
from sandlot.errors import SandlotError


def end_quietly(box: Sandbox) -> None:
    """Delete the sandbox. An unreachable server is no error here: the sandbox then ends by its own time limit."""
    with contextlib.suppress(SandlotError):
        box.delete()
