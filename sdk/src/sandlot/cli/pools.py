"""pools: manages the server's warm pools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from sandlot.cli import output
from sandlot.models import PoolInfo, PoolReuse
from sandlot.units import show_gpus, show_size

pools = typer.Typer(
    help="Warm pools: sandboxes kept ready, so that a create takes milliseconds.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    app.add_typer(pools, name="pools")


_USUAL = PoolReuse()
_COLUMNS: dict[str, Callable[[PoolInfo], object]] = {
    "NAME": lambda pool: pool.name,
    "OWNER": lambda pool: pool.owner or "(shared)",
    "IMAGE": lambda pool: pool.image,
    "SIZE": lambda pool: pool.size,
    "READY": lambda pool: pool.ready,
    "STARTING": lambda pool: pool.starting,
    "CPU": lambda pool: f"{pool.cpu:g}",
    "MEMORY": lambda pool: show_size(pool.memory),
    "GPU": lambda pool: show_gpus(pool.gpu_count, pool.gpu_type),
    "RUNTIME": lambda pool: pool.runtime_class or "",
    "REUSE": lambda pool: pool.reuse.policy,
    "MESSAGE": lambda pool: pool.message or "",
}


@pools.command("ls")
def list_pools(json: output.Json = False) -> None:
    """List the pools."""
    from sandlot import Pools

    with output.connection.client() as client:
        found = Pools(client=client).list()
    output.show_table(found, json=json, columns=_COLUMNS, empty="no pools")


@pools.command("set")
def set_pool(
    name: Annotated[str, typer.Argument(help="The pool's name; a new name makes a new pool.")],
    size: Annotated[
        int | None, typer.Option("--size", "-n", min=0, help="How many to keep ready; ends autoscaling.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="The image; default of a new pool: host.")] = None,
    cpu: Annotated[float | None, typer.Option(help="Cores.")] = None,
    memory: Annotated[str | None, typer.Option(help="Such as 1GiB.")] = None,
    disk: Annotated[str | None, typer.Option(help="Such as 5GiB.")] = None,
    pids: Annotated[int | None, typer.Option(help="Limit of processes.")] = None,
    gpu_count: Annotated[int | None, typer.Option(min=0, help="GPUs.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="Such as H100; empty: any.")] = None,
    runtime_class: Annotated[
        str | None, typer.Option(help="A RuntimeClass that the operator allows; empty: the chart's.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="The tenant that owns it; empty: shared. Needs the role operate.")
    ] = None,
    reuse: Annotated[
        Literal["never", "tenant"] | None,
        typer.Option(
            help=f"Who may get a used slot after its reset; default of a new pool: {_USUAL.policy}."
        ),
    ] = None,
    max_uses: Annotated[int | None, typer.Option(min=1, help="Sandboxes in one slot at most.")] = None,
    max_age: Annotated[
        float | None, typer.Option(help="Seconds after its start until which a slot is reused.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all are ready.")] = False,
    timeout: Annotated[float, typer.Option(help="Timeout of --wait in seconds.")] = 300.0,
    json: output.Json = False,
) -> None:
    """Make or change a pool; options that you omit keep their values."""
    from sandlot import Pools

    with output.connection.client() as client:
        server = Pools(client=client)
        if size is None and all(pool.name != name for pool in server.list()):
            raise typer.BadParameter(f"there is no pool {name} yet: give --size")
        pool = server.set(
            name,
            size=size,
            image=image,
            cpu=cpu,
            memory=memory,
            disk=disk,
            pids=pids,
            gpu_count=gpu_count,
            gpu_type=gpu_type,
            runtime_class=runtime_class,
            owner=owner,
            reuse=reuse,
            max_uses=max_uses,
            max_age=max_age,
        )
        if wait:
            with _progress(pool, quiet=json) as show:
                pool = server.wait_warm(name, timeout=timeout, progress=show)
    output.show(pool, json=json, text=f"{pool.name}: {pool.ready} of {pool.size} ready, image {pool.image}")


@contextmanager
def _progress(pool: PoolInfo, *, quiet: bool) -> Generator[Callable[[PoolInfo], None], None, None]:
    """Show a progress bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda pool: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console(), transient=True) as bar:
        task = bar.add_task(f"warming {pool.name}", total=pool.size)
        yield lambda pool: bar.update(task, completed=pool.ready)


@pools.command("rm")
def delete_pool(name: Annotated[str, typer.Argument()], json: output.Json = False) -> None:
    """Delete a pool and its unused sandboxes."""
    from sandlot import Pools

    with output.connection.client() as client:
        Pools(client=client).delete(name)
    output.show({"deleted": name}, json=json, text=name)
