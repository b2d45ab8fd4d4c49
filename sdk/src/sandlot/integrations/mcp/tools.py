"""All tools, in the order in which a client lists them."""

from __future__ import annotations

from sandlot.integrations.mcp import commands, files, running, sandboxes, search
from sandlot.integrations.mcp.tool import Tool

TOOLS: tuple[Tool, ...] = (
    *sandboxes.TOOLS,
    *commands.TOOLS,
    *running.TOOLS,
    *files.TOOLS,
    *search.TOOLS,
)
BY_NAME = {tool.name: tool for tool in TOOLS}
