"""The sidecar of one sandbox: claims, commands, files, readiness; asyncio, httptools and the standard library only."""

__version__ = "0.1.0"
