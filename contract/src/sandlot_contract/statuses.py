"""What the control API says of a sandbox's life: Prime's words."""

from __future__ import annotations

from typing import Literal

Status = Literal["PENDING", "RUNNING", "TERMINATED", "ERROR", "TIMEOUT"]
TERMINAL: frozenset[str] = frozenset({"TERMINATED", "ERROR", "TIMEOUT"})
