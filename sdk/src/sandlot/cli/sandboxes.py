"""fork, ps, logs, rm: fork, list and delete sandboxes, and show their logs."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.models import SandboxInfo
from sandlot.units import show_gpus, show_size


def register(app: typer.Typer) -> None:
    app.command()(fork)
    app.command()(ps)
    app.command()(logs)
    app.command()(rm)


def fork(
    sandbox: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 1,
    start: Annotated[bool, typer.Option("--start", help="Run its start command in each.")] = False,
    label: Annotated[list[str] | None, typer.Option(help="Label, in place of its labels.")] = None,
    name: Annotated[str | None, typer.Option(help="A display name, which a number follows.")] = None,
    lifetime: Annotated[
        float | None, typer.Option(help="Seconds until each ends by itself; default: as its own.")
    ] = None,
    json: output.Json = False,
) -> None:
    """Create sandboxes with the files that one has now, all or none, and print their ids."""
    from sandlot import Sandbox

    with output.lost_is_said(), output.connection.client() as client:
        box = Sandbox.connect(sandbox, client=client)
        made = box.fork(count, start_command=start, labels=label, name=name, timeout=lifetime)
    ids = [one.id for one in made]
    output.show({"group_id": made.id, "sandbox_ids": ids}, json=json, text="\n".join(ids))


def ps(
    label: Annotated[list[str] | None, typer.Option(help="Only sandboxes with all these labels.")] = None,
    run_name: Annotated[str | None, typer.Option("--run", help="Only sandboxes of this run.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also ended sandboxes.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the ids.")] = False,
    json: output.Json = False,
) -> None:
    """List sandboxes, newest first."""
    from sandlot import Sandbox

    with output.connection.client() as client:
        active = None if everything else True
        found = Sandbox.list(labels=label or [], run=run_name, active=active, client=client)
    if quiet and not json:
        for info in found:
            print(info.id)
        return
    output.show_table(found, json=json, columns=_COLUMNS, empty="no sandboxes")


def _state(info: SandboxInfo) -> str:
    if info.queue_position is not None and info.status == "PENDING":
        wait = "" if info.estimated_wait is None else f", about {info.estimated_wait:.0f} s"
        return f"PENDING (place {info.queue_position}{wait})"
    return f"{info.status} ({info.verdict})" if info.verdict else info.status


_COLUMNS: dict[str, Callable[[SandboxInfo], object]] = {
    "ID": lambda info: info.id,
    "NAME": lambda info: info.name,
    "IMAGE": lambda info: info.image,
    "STATUS": _state,
    "CPU": lambda info: f"{info.cpu:g}",
    "MEMORY": lambda info: show_size(info.memory),
    "GPU": lambda info: show_gpus(info.gpu_count, info.gpu_type),
    "START": lambda info: (
        "warm" if info.pool_hit else f"cold ({info.cold_reason})" if info.cold_reason else "cold"
    ),
    "CREATED": lambda info: info.created_at[:19].replace("T", " "),
    "RUN": lambda info: info.run or "",
    "LABELS": lambda info: ",".join(info.labels),
}


def logs(
    sandbox: Annotated[str, typer.Argument(metavar="ID")],
    tail: Annotated[int | None, typer.Option(help="Only this many bytes from the end.")] = None,
    json: output.Json = False,
) -> None:
    """Show the output of a sandbox's start command."""
    from sandlot import Sandbox

    with output.connection.client() as client:
        text = Sandbox.connect(sandbox, client=client).logs(tail=tail)
    if json:
        print(json_module.dumps({"id": sandbox, "logs": text}, ensure_ascii=False))
    else:
        sys.stdout.write(text)


def rm(
    sandboxes: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids as `ps` shows them.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sandboxes of this API key.")] = False,
    label: Annotated[list[str] | None, typer.Option(help="Sandboxes with all these labels.")] = None,
    json: output.Json = False,
) -> int:
    """Delete sandboxes: by id, by label, or all."""
    from sandlot import Sandbox

    if sum(map(bool, (sandboxes, everything, label))) != 1:
        raise typer.BadParameter("give ids, --label or --all")
    with output.connection.client() as client:
        ids = list(sandboxes or [])
        if everything:
            ids = [info.id for info in Sandbox.list(client=client)]
        if label:
            result = Sandbox.delete_many(labels=label, client=client)
        elif ids:
            result = Sandbox.delete_many(ids, client=client)
        else:
            output.show({"deleted": [], "failed": {}}, json=json, text="no sandboxes")
            return 0
    if json:
        print(json_module.dumps({"deleted": list(result.deleted), "failed": result.failed}))
    else:
        for sandbox in result.deleted:
            print(sandbox)
        for sandbox, reason in result.failed.items():
            print(f"sandlot: {sandbox}: {reason}", file=sys.stderr)
    return output.FAILED if result.failed else 0
