"""bench: measures the latency of this server beside the same command run locally."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from sandlot.cli import output


def register(app: typer.Typer) -> None:
    app.command()(bench)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _times(action: Callable[[], Any], *, count: int, name: str, quiet: bool) -> list[float]:
    from rich.progress import track

    seconds: list[float] = []
    steps = track(range(count), name, console=output.console(), transient=True, disable=quiet)
    for _ in steps:
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return seconds


def bench(
    image: Annotated[str, typer.Option()] = "host",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many execs to time.")] = 200,
    concurrency: Annotated[int, typer.Option(min=1, help="Concurrent callers, for the throughput.")] = 16,
    json: output.Json = False,
) -> None:
    """Time create, exec and delete, and compare exec with running `sh -c true` here."""
    from sandlot import Sandbox

    quiet = json or not sys.stderr.isatty()
    creates = max(1, min(10, count // 20))
    with output.connection.client() as client:

        def cycle() -> None:
            with Sandbox.create(image, client=client) as box:
                box.exec("true", check=True)

        made = _times(cycle, count=creates, name="create, exec, delete", quiet=quiet)
        with Sandbox.create(image, client=client) as box:
            box.exec("true", check=True)
            execs = _times(lambda: box.exec("true", check=True), count=count, name="exec", quiet=quiet)
            begin = time.perf_counter()
            box.map_execs(["true"] * count, concurrency=concurrency)
            together = time.perf_counter() - begin
    local = _times(
        lambda: subprocess.run(["sh", "-c", "true"], check=True), count=count, name="here", quiet=quiet
    )
    result = {
        "cycle_p50_ms": percentile(made, 0.5) * 1e3,
        "exec_p50_ms": percentile(execs, 0.5) * 1e3,
        "exec_p99_ms": percentile(execs, 0.99) * 1e3,
        "execs_per_second": count / together,
        "concurrency": concurrency,
        "here_p50_ms": percentile(local, 0.5) * 1e3,
        "exec_over_here": percentile(execs, 0.5) / percentile(local, 0.5),
    }
    lines = [
        f"create + exec + delete   p50 {result['cycle_p50_ms']:.1f} ms  ({creates} times)",
        f"exec                     p50 {result['exec_p50_ms']:.2f} ms  p99 {result['exec_p99_ms']:.2f} ms",
        f"exec, {concurrency} callers".ljust(24) + f" {result['execs_per_second']:.0f} a second",
        f"the same command here    p50 {result['here_p50_ms']:.2f} ms",
        f"exec is {result['exec_over_here']:.2f} times the command here",
    ]
    output.show(result, json=json, text="\n".join(lines))
