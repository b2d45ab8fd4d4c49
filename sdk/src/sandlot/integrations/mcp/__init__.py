"""Serves sandboxes as tools of the Model Context Protocol: over stdio (`sandlot mcp`), and in the gateway at /mcp.

`definitions` says what the tools are, `tools` what they do, `protocol` speaks JSON-RPC. The transports are `stdio`
and `http`. Only the standard library is needed: docs/adr/0040.
"""
