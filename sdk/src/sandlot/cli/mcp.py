"""mcp: serves sandboxes to one client of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

from typing import Annotated

import typer

from sandlot.cli import output


def register(app: typer.Typer) -> None:
    app.command()(mcp)


def mcp(
    image: Annotated[
        str | None, typer.Option(help="The image of sandboxes that the client creates without one.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the sandboxes at the end, until their timeouts.")
    ] = False,
) -> int:
    """Serve sandboxes as tools of MCP over standard input and output, and delete them when the client leaves."""
    import asyncio

    from sandlot._async.client import AsyncClient
    from sandlot.integrations.mcp.stdio import serve

    async def served() -> int:
        async with AsyncClient(url=output.connection.url, api_key=output.connection.api_key) as client:
            return await serve(client=client, image=image, keep=keep)

    return asyncio.run(served())
