"""images: has the server prepare the images of a data set before its sandboxes are created."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sandlot.cli import output
from sandlot.models import WarmupInfo
from sandlot.units import show_size

if TYPE_CHECKING:
    from sandlot import ImageWarmups

images = typer.Typer(
    help="Images that the server prepares ahead, so that no create waits for a pull.", no_args_is_help=True
)
_SHOWN = 10  # errors; --json has all

Timeout = Annotated[float | None, typer.Option(help="Seconds to wait; default: until it is done.")]


def register(app: typer.Typer) -> None:
    app.add_typer(images, name="images")


_COLUMNS: dict[str, Callable[[WarmupInfo], object]] = {
    "ID": lambda warmup: warmup.id,
    "TENANT": lambda warmup: warmup.tenant,
    "STATE": lambda warmup: warmup.state,
    "IMAGES": lambda warmup: warmup.images,
    "READY": lambda warmup: warmup.ready,
    "FAILED": lambda warmup: warmup.failed,
    "SIZE": lambda warmup: show_size(warmup.bytes),
    "LEFT": lambda warmup: "" if warmup.done else _left(warmup),
    "MESSAGE": lambda warmup: warmup.message or "",
}


@images.command("warm")
def warm(
    file: Annotated[
        str,
        typer.Argument(
            help="A list of images, a JSONL file with an image column, or a folder of tasks in harbor's format."
        ),
    ],
    column: Annotated[
        str | None,
        typer.Option(help="The column with the image; default: image_name, docker_image or image."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all are prepared.")] = True,
    timeout: Timeout = None,
    json: output.Json = False,
) -> None:
    """Prepare the images of a data set; the exit code is 1 if some failed."""
    from sandlot import ImageWarmups, image_lists

    found = image_lists.read(file, column=column)
    if found.without_image:
        print(
            f"sandlot: left out {len(found.without_image)} of the tasks, with a Dockerfile and no image, such as "
            f"{found.without_image[0]}: build their images and name them in task.toml",
            file=sys.stderr,
        )
    with output.connection.client() as client:
        server = ImageWarmups(client=client)
        warmup = server.create(found.counts)
        if wait:
            warmup = _follow(server, warmup, timeout=timeout, quiet=json)
    _show(warmup, json=json)


@images.command("wait")
def wait_for(
    warmup: Annotated[str, typer.Argument(help="The id of a warm-up.")],
    timeout: Timeout = None,
    json: output.Json = False,
) -> None:
    """Wait for a warm-up; the exit code is 1 if images failed."""
    from sandlot import ImageWarmups

    with output.connection.client() as client:
        server = ImageWarmups(client=client)
        done = _follow(server, server.get(warmup), timeout=timeout, quiet=json)
    _show(done, json=json)


@images.command("ls")
def list_warmups(json: output.Json = False) -> None:
    """List the warm-ups; finished ones are shown for an hour."""
    from sandlot import ImageWarmups

    with output.connection.client() as client:
        found = ImageWarmups(client=client).list()
    output.show_table(found, json=json, columns=_COLUMNS, empty="no warm-ups")


@images.command("rm")
def delete_warmup(
    warmup: Annotated[str, typer.Argument(help="The id of a warm-up.")], json: output.Json = False
) -> None:
    """Stop a warm-up; images that are ready stay."""
    from sandlot import ImageWarmups

    with output.connection.client() as client:
        ImageWarmups(client=client).delete(warmup)
    output.show({"deleted": warmup}, json=json, text=warmup)


def _show(warmup: WarmupInfo, *, json: bool) -> None:
    """Print the result. Exits with 1 if images failed."""
    failed = f", {warmup.failed} failed" if warmup.failed else ""
    text = f"{warmup.id}: {warmup.ready} of {warmup.images} images ready{failed}"
    if warmup.bytes:
        text += f", {show_size(warmup.bytes)}"
    output.show(warmup, json=json, text=text)
    if warmup.message:
        print(f"sandlot: {warmup.message}", file=sys.stderr)
    for error in warmup.errors[:_SHOWN]:
        where = f" on {error.node}" if error.node else ""
        print(f"sandlot: {error.image}{where}: {' '.join(error.message.split())}", file=sys.stderr)
    if len(warmup.errors) > _SHOWN:
        print(f"sandlot: {len(warmup.errors) - _SHOWN} more errors: --json shows them", file=sys.stderr)
    if warmup.failed:
        raise typer.Exit(output.FAILED)


def _follow(server: ImageWarmups, warmup: WarmupInfo, *, timeout: float | None, quiet: bool) -> WarmupInfo:
    with _progress(warmup, quiet=quiet) as show:
        return server.wait(warmup.id, timeout=timeout, progress=show)


@contextmanager
def _progress(warmup: WarmupInfo, *, quiet: bool) -> Generator[Callable[[WarmupInfo], None], None, None]:
    """Show a progress line on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda warmup: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[about]}"),
    )
    with Progress(*columns, console=output.console(), transient=True) as bar:
        task = bar.add_task("preparing images", total=warmup.images, about="")

        def show(now: WarmupInfo) -> None:
            failed = f", {now.failed} failed" if now.failed else ""
            about = f"{show_size(now.bytes)}{failed}, {now.message or _left(now)}"
            bar.update(task, completed=now.ready + now.failed, about=about)

        yield show


def _left(warmup: WarmupInfo) -> str:
    """Return the time left for people."""
    if warmup.seconds_left is None:
        return "time left unknown"
    minutes, seconds = divmod(round(warmup.seconds_left), 60)
    return f"about {minutes} min left" if minutes >= 2 else f"about {minutes * 60 + seconds} s left"
