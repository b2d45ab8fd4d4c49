"""shell: an interactive terminal in a sandbox, like ssh."""

from __future__ import annotations

from typing import Annotated

import typer

from sandlot.cli import output

LOGIN = "if command -v bash >/dev/null 2>&1; then exec bash -i; else exec sh -i; fi"


def register(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(shell)


def shell(
    sandbox: Annotated[
        str | None, typer.Argument(metavar="ID", help="The sandbox; default: a new one.")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="CMD", help="Command to run instead of bash or sh.")
    ] = None,
    image: Annotated[str, typer.Option(help="The image of a new sandbox.")] = "host",
    user: Annotated[str | None, typer.Option("--user", "-u")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w")] = None,
) -> int:
    """Open a terminal in a sandbox. A new sandbox is deleted when the shell ends."""
    # Not at the top: asyncio takes a tenth of every command's start.
    import asyncio

    from sandlot.cli.terminal import attended_shell

    line = output.as_command(command) if command else LOGIN
    with output.lost_is_said():
        return asyncio.run(attended_shell(sandbox, line, image, user, cwd))
