"""Sandboxes of the OpenAI Agents SDK: `SandboxRunConfig(client=SandlotSandboxClient(...))` runs an agent's tools in Sandlot."""

from __future__ import annotations

from sandlot.integrations.openai_agents.client import SandlotSandboxClient, SandlotSandboxClientOptions
from sandlot.integrations.openai_agents.losses import SessionLost

__all__ = ["SandlotSandboxClient", "SandlotSandboxClientOptions", "SessionLost"]
