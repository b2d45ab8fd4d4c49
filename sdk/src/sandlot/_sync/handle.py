# This file is auto-generated from sdk/src/sandlot/_async/handle.py by tools/async_to_sync.py: do not change it.
"""The base of a sandbox's commands, network and checkpoints: its client, state and data plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandlot._sync.client import Client
from sandlot._sync.plane import Plane
from sandlot.models import SandboxInfo


class Handle:
    """A sandbox's client, latest known state and data plane."""

    def __init__(self, *, client: Client, info: SandboxInfo, auth: Mapping[str, Any] | None = None) -> None:
        self.client = client
        self.info = info
        self._plane = Plane(client=client, sandbox_id=info.id, auth=auth)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.status}>"

    @property
    def id(self) -> str:
        return self.info.id
