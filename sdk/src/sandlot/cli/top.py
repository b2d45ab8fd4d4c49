"""top: a live view of the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandlot.cli import output
from sandlot.units import show_size

if TYPE_CHECKING:
    from rich.console import Group


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    once: Annotated[bool, typer.Option(help="Print once and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between updates.")] = 1.0,
    json: output.Json = False,
) -> None:
    """Show sandboxes, pools and their resource use, until Ctrl-C."""
    with output.connection.client() as client:
        if json:
            output.show(client.call("GET", "/stats"), json=True, text="")
            return
        from rich.console import Console
        from rich.live import Live

        console = Console()
        if once:
            console.print(_screen(client.call("GET", "/stats")))
            return
        first = _screen(client.call("GET", "/stats"))
        with suppress(KeyboardInterrupt), Live(first, console=console, screen=console.is_terminal) as live:
            while True:
                time.sleep(interval)
                live.update(_screen(client.call("GET", "/stats")))


def _screen(stats: Mapping[str, Any]) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts: Mapping[str, Any] = stats.get("sandboxes") or {}
    queue: Mapping[str, Any] = stats.get("queue") or {}
    machine: Mapping[str, Any] = stats.get("machine") or {}
    lines = [
        "sandboxes  " + (_pairs((state.lower(), count) for state, count in counts.items()) or "none"),
        "queue      " + _pairs((name, queue.get(name, 0)) for name in ("waiting", "starting", "ready")),
    ]
    if "load" in machine:
        used = machine.get("memory_total", 0) - machine.get("memory_available", 0)
        lines.append(
            f"machine    load {machine['load'][0]:.1f} of {machine.get('cpu_count', 0):g} cores  "
            f"memory {show_size(used)} of {show_size(machine.get('memory_total', 0))}  "
            f"instances {machine.get('instances', 0)} of {machine.get('max_instances', 0)}"
        )
    lines += [f"note       {note}" for note in machine.get("notes") or ()]
    pools = Table("pool", "image", "size", "ready", "starting", "message", box=None)
    for pool in stats.get("pools") or ():
        keys = ("name", "image", "size", "ready", "starting")
        pools.add_row(*(str(pool.get(key, "")) for key in keys), pool.get("message") or "")
    boxes = Table("sandbox", "name", "cpu s", "memory", "pids", box=None)
    for used in stats.get("usage") or ():
        boxes.add_row(
            str(used.get("sandbox_id", "")),
            str(used.get("name") or ""),
            _number(used.get("cpu"), "{:.1f}"),
            _size(used.get("memory")),
            _number(used.get("pids"), "{:.0f}"),
        )
    return Group(Text("\n".join(lines)), Text(), pools, Text(), boxes)


def _pairs(items: Iterable[tuple[str, object]]) -> str:
    return "  ".join(f"{name} {value}" for name, value in items)


def _number(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "–"


def _size(value: object) -> str:
    return show_size(value) if isinstance(value, int | float) else "–"
