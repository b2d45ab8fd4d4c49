"""top: the server at a glance, live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandlot.cli import output
from sandlot.units import show_size

if TYPE_CHECKING:
    from rich.console import Group


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    once: Annotated[bool, typer.Option(help="Print once and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks.")] = 1.0,
    json: output.Json = False,
) -> None:
    """Show sandboxes, pools and what they use, until Ctrl-C."""
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
        with Live(_screen(client.call("GET", "/stats")), console=console, screen=console.is_terminal) as live:
            while True:
                time.sleep(interval)
                live.update(_screen(client.call("GET", "/stats")))


def _screen(stats: Mapping[str, Any]) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts: Mapping[str, Any] = stats.get("counts") or {}
    states = "  ".join(f"{state.lower()} {count}" for state, count in counts.items()) or "no sandboxes"
    pools = Table("pool", "image", "size", "ready", "starting", box=None, title_justify="left")
    for pool in stats.get("pools") or ():
        pools.add_row(*(str(pool.get(key, "")) for key in ("name", "image", "size", "ready", "starting")))
    boxes = Table("sandbox", "name", "status", "cpu s", "memory", "peak", "pids", "ops", box=None)
    for box in stats.get("sandboxes") or ():
        usage: Mapping[str, Any] = box.get("usage") or {}
        boxes.add_row(
            str(box.get("id", "")),
            str(box.get("name") or ""),
            str(box.get("status", "")),
            _number(usage.get("cpu"), "{:.1f}"),
            _size(usage.get("memory")),
            _size(usage.get("memory_peak")),
            _number(usage.get("pids"), "{:.0f}"),
            _number(box.get("ops_running"), "{:.0f}"),
        )
    return Group(Text(states), Text(), pools, Text(), boxes)


def _number(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "–"


def _size(value: object) -> str:
    return show_size(value) if isinstance(value, int | float) else "–"
