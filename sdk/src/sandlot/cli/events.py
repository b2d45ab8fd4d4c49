"""events: what happens to the tenant's sandboxes, until Ctrl-C."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.sandbox_events import SandboxEvent


def register(app: typer.Typer) -> None:
    app.command()(events)


def events(
    cursor: Annotated[
        str | None, typer.Option(help="Go on where a stream was, or from `oldest`; default: from now on.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="Repeat; all must match.")] = None,
    run: Annotated[str | None, typer.Option(help="Only of sandboxes of this run.")] = None,
    sandbox: Annotated[list[str] | None, typer.Option(help="Only of this one; repeat.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", help="Such as sandbox.ended; repeat, one must match.")
    ] = None,
    json: output.Json = False,
) -> None:
    """Print what happens to this key's sandboxes, a line for each event, until Ctrl-C."""
    from sandlot import Events

    with (
        output.connection.client() as client,
        Events(
            cursor=cursor,
            labels=label or (),
            run=run,
            sandbox_ids=sandbox or (),
            types=kind or (),
            client=client,
        ) as stream,
    ):
        output.note("waiting for events")
        for event in stream:
            print(json_module.dumps(asdict(event)) if json else _line(event), flush=True)


def _line(event: SandboxEvent) -> str:
    what = event.type.removeprefix("sandbox.")
    about = event.verdict if event.place is None else f"place {event.place}"
    message = f": {event.message}" if event.message else ""
    text = f"{event.timestamp} {what:7} {event.sandbox_id} {about or ''}{message}".rstrip()
    # Code can choose a part of a message: control characters must not steer the terminal.
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
