"""cp: files and directories between this machine and a sandbox."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.units import show_size

PIECE = 1 << 20


def register(app: typer.Typer) -> None:
    app.command("cp")(copy)


def copy(
    source: Annotated[
        str, typer.Argument(help="A path here, ID:/path in a sandbox, or - for standard input.")
    ],
    target: Annotated[str, typer.Argument(help="Likewise; - is standard output.")],
    user: Annotated[
        str | None, typer.Option(help="Read or write in the sandbox as this user, a name or uid.")
    ] = None,
    json: output.Json = False,
) -> None:
    """Copy files or directories into a sandbox or out of it."""
    from sandlot import Sandbox

    there, here = remote(source), remote(target)
    if (there is None) == (here is None):
        raise typer.BadParameter("exactly one of the two paths must be in a sandbox: write it as ID:/path")
    size = None if there is not None or source == "-" else _local_size(Path(source))
    with output.connection.client() as client:
        if here is not None:
            files = Sandbox.connect(here[0], client=client).files
            if source == "-":
                size = files.write(here[1], iter(lambda: sys.stdin.buffer.read(PIECE), b""), user=user)
            else:
                path = here[1] + Path(source).name if here[1].endswith("/") else here[1]
                with _progress(source, total=size, quiet=json) as on_bytes:
                    size = files.upload(source, path, on_bytes=on_bytes, user=user)
        else:
            assert there is not None
            files = Sandbox.connect(there[0], client=client).files
            if target == "-":
                size = 0
                for piece in files.stream(there[1], user=user):
                    sys.stdout.buffer.write(piece)
                    size += len(piece)
                sys.stdout.buffer.flush()
                return
            info = files.stat(there[1], user=user)
            with _progress(
                there[1], total=info.size if info.type == "file" else None, quiet=json
            ) as on_bytes:
                size = files.download(there[1], target, on_bytes=on_bytes, user=user)
    output.show({"source": source, "target": target, "bytes": size}, json=json, text=show_size(size))


def remote(text: str) -> tuple[str, str] | None:
    """Split `ID:path`, or return None; a local path has no colon before its first slash."""
    name, colon, path = text.partition(":")
    if not colon or "/" in name or not name:
        return None
    return name, path or "."


def _local_size(path: Path) -> int:
    if not path.exists():
        raise ValueError(f"{path}: no such file or directory")
    if path.is_file():
        return path.stat().st_size
    return sum(part.stat().st_size for part in path.rglob("*") if part.is_file())


@contextmanager
def _progress(name: str, *, total: int | None, quiet: bool) -> Generator[Callable[[int], None], None, None]:
    """Show a progress bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=output.console(), transient=True) as bar:
        task = bar.add_task(Path(name).name, total=total)
        yield lambda size: bar.advance(task, size)
