"""pools: what the server keeps warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.models import PoolInfo
from sandlot.units import show_size

pools = typer.Typer(
    help="Warm pools: sandboxes kept ready, so that a create takes milliseconds.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    app.add_typer(pools, name="pools")


_COLUMNS: dict[str, Callable[[PoolInfo], object]] = {
    "NAME": lambda pool: pool.name,
    "IMAGE": lambda pool: pool.image,
    "SIZE": lambda pool: pool.size,
    "READY": lambda pool: pool.ready,
    "STARTING": lambda pool: pool.starting,
    "CPU": lambda pool: f"{pool.cpu:g}",
    "MEMORY": lambda pool: show_size(pool.memory),
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
    name: Annotated[str, typer.Argument()],
    size: Annotated[int, typer.Argument(help="How many to keep ready.")],
    image: Annotated[str, typer.Option()] = "host",
    cpu: Annotated[float | None, typer.Option(help="Cores.")] = None,
    memory: Annotated[str | None, typer.Option(help="Such as 1GiB.")] = None,
    disk: Annotated[str | None, typer.Option(help="Such as 5GiB.")] = None,
    pids: Annotated[int | None, typer.Option(help="Most processes.")] = None,
    json: output.Json = False,
) -> None:
    """Make a pool, or change it."""
    from sandlot import Pools

    with output.connection.client() as client:
        pool = Pools(client=client).set(
            name, size=size, image=image, cpu=cpu, memory=memory, disk=disk, pids=pids
        )
    output.show(pool, json=json, text=f"{pool.name}: {pool.size} of {pool.image}")


@pools.command("rm")
def delete_pool(name: Annotated[str, typer.Argument()], json: output.Json = False) -> None:
    """Delete a pool and its unused sandboxes."""
    from sandlot import Pools

    with output.connection.client() as client:
        Pools(client=client).delete(name)
    output.show({"deleted": name}, json=json, text=name)
