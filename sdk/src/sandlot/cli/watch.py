"""watch: what changes in a directory of a sandbox, until Ctrl-C or the sandbox's end."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.cli.copy import remote
from sandlot.file_records import FileEvent


def register(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    directory: Annotated[str, typer.Argument(help="ID:/path of a directory in a sandbox.")],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Also everything below the directory.")
    ] = False,
    user: Annotated[
        str | None, typer.Option(help="Watch with the permissions of this user, a name or uid.")
    ] = None,
    json: output.Json = False,
) -> None:
    """Print what changes in a directory of a sandbox, a line for each event."""
    from sandlot import Sandbox

    found = remote(directory)
    if found is None:
        raise typer.BadParameter("name a directory in a sandbox: write it as ID:/path")
    with (
        output.lost_is_said(),
        output.connection.client() as client,
        Sandbox.connect(found[0], client=client).files.watch(
            found[1], recursive=recursive, user=user
        ) as events,
    ):
        print(f"watching {directory}", file=sys.stderr, flush=True)
        for event in events:
            print(json_module.dumps(asdict(event)) if json else _line(event), flush=True)


def _line(event: FileEvent) -> str:
    path = event.path if event.old_path is None else f"{event.old_path} -> {event.path}"
    # Code chooses the names: one with control characters must not steer the terminal.
    shown = "".join(one if one.isprintable() else repr(one)[1:-1] for one in path)
    return f"{event.kind:10} {shown}{'/' if event.is_dir else ''}"
