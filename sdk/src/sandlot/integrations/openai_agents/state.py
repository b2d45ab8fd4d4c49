"""What a run's stored state has of a session."""
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUntypedBaseClass=false

from __future__ import annotations

from typing import Literal

from agents.sandbox.session import SandboxSessionState

Persistence = Literal["tar", "checkpoint"]


class SandlotSessionState(SandboxSessionState):
    """What a later process needs to go on with a session."""

    type: Literal["sandlot"] = "sandlot"
    sandbox_id: str
    image: str | None = None
    timeout: float | None = None
    workspace_persistence: Persistence = "tar"
