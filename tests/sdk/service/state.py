"""What the server knows of sandboxes, pools and commands; a test looks into it and changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sdk.service.op import Op


class State:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = ""
        self.api_key = "test-key"
        self.token = "token-1"
        self.ops: dict[str, Op] = {}
        self.sandboxes: dict[str, dict[str, object]] = {}
        self.keys: dict[str, str] = {}
        self.pools: dict[str, dict[str, object]] = {}
        self.warmups: dict[str, dict[str, Any]] = {}
        self.exposures: dict[str, dict[str, object]] = {}
        self.lost_verdict: str | None = None
        self.pending_reads = 0  # how many times a new sandbox is told to be PENDING
