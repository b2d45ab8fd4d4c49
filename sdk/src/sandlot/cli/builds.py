"""build: replays a Dockerfile in sandboxes and prints the checkpoint that it makes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sandlot.cli import output


def register(app: typer.Typer) -> None:
    app.command("build")(build)


def build(
    context: Annotated[str, typer.Argument(metavar="DIR", help="The directory that COPY reads.")],
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="The Dockerfile; default: DIR/Dockerfile.")
    ] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=VALUE]", help="A build argument.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The stage to build; default: the last.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do not return an earlier build.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for the whole build.")] = 3600.0,
    memory: Annotated[str | None, typer.Option(help="Such as 1GiB.")] = None,
    disk: Annotated[str | None, typer.Option(help="Such as 5GiB.")] = None,
    json: output.Json = False,
) -> None:
    """Build a checkpoint from a Dockerfile, without Docker; its id is the output."""
    from sandlot._sync.build import build as replay

    with output.connection.client() as client:
        built = replay(
            context,
            dockerfile=file,
            args=output.pairs(build_arg or (), option="--build-arg"),
            target=target,
            cache=not no_cache,
            timeout=timeout,
            memory=memory,
            disk=disk,
            on_output=_progress,
            client=client,
        )
    output.show(built, json=json, text=built.checkpoint_id)


def _progress(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
