"""Sidecar of one sandbox: claims, commands, files, webhooks; asyncio, httptools and the standard library only."""

__version__ = "0.1.0"
