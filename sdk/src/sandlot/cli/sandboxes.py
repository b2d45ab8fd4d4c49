"""run, exec, fork, ps, logs, rm: run commands in sandboxes, fork, list and delete sandboxes."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from sandlot.cli import output
from sandlot.cli.options import Command, Cwd, Env, Interactive, Secret, SecretRef, Shell, Timeout, User
from sandlot.models import Exit, SandboxInfo, Stderr, Stdout
from sandlot.units import show_gpus, show_size

if TYPE_CHECKING:
    from sandlot import Sandbox

AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def register(app: typer.Typer) -> None:
    app.command(context_settings=AS_GIVEN)(run)
    app.command("exec", context_settings=AS_GIVEN)(execute)
    app.command()(fork)
    app.command()(ps)
    app.command()(logs)
    app.command()(rm)


def run(
    image: Annotated[str, typer.Argument(help="`host`, an OCI archive or layout, or an image reference.")],
    command: Command,
    env: Env = None,
    secret: Secret = None,
    secret_ref: SecretRef = None,
    timeout: Timeout = None,
    cwd: Cwd = None,
    user: User = None,
    shell: Shell = None,
    stdin: Interactive = False,
    cpu: Annotated[float | None, typer.Option(help="Cores.")] = None,
    memory: Annotated[str | None, typer.Option(help="Such as 1GiB.")] = None,
    disk: Annotated[str | None, typer.Option(help="Such as 5GiB.")] = None,
    gpu_count: Annotated[int | None, typer.Option(min=0, help="GPUs.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="Such as H100; default: any.")] = None,
    pool: Annotated[
        str | None,
        typer.Option(help="The pool to use, by default one that fits; its own runtime class needs its name."),
    ] = None,
    network: Annotated[str, typer.Option(help="`full` or `none`.")] = "full",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="TARGET", help="Allow only this host, *.host or network."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(metavar="TARGET", help="Block this host, *.host or network."),
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="Label to find and delete it by.")] = None,
    run_name: Annotated[
        str | None,
        typer.Option("--run", help='The training run that it is of, "" for none; default: SANDLOT_RUN.'),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A display name.")] = None,
    lifetime: Annotated[float, typer.Option(help="Seconds until the sandbox ends by itself.")] = 3600.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Do not delete the sandbox afterwards; print its id.")
    ] = False,
    json: output.Json = False,
) -> int:
    """Run a command in a new sandbox and exit with its code."""
    from sandlot import Sandbox

    with output.lost_is_said(), output.connection.client() as client:
        box = Sandbox.create(
            image,
            env=output.pairs(env or [], option="--env"),
            secrets=output.pairs(secret or [], option="--secret"),
            secret_refs=output.pairs(secret_ref or [], option="--secret-ref", from_environment=False),
            timeout=lifetime,
            cpu=cpu,
            memory=memory,
            disk=disk,
            gpu_count=gpu_count,
            gpu_type=gpu_type,
            pool=pool,
            network=network,
            allow=allow or None,
            deny=deny or None,
            labels=label or [],
            run=run_name,
            name=name,
            client=client,
        )
        try:
            return _run(
                box, command, timeout=timeout, cwd=cwd, user=user, shell=shell, stdin=stdin, json=json
            )
        finally:
            if keep:
                print(f"sandlot: kept {box.id}", file=sys.stderr)
            else:
                box.delete()


def execute(
    sandbox: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    command: Command,
    env: Env = None,
    timeout: Timeout = None,
    cwd: Cwd = None,
    user: User = None,
    shell: Shell = None,
    stdin: Interactive = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the op id and leave it running.")
    ] = False,
    json: output.Json = False,
) -> int:
    """Run a command in a sandbox and exit with its code."""
    from sandlot import Sandbox

    with output.lost_is_said(), output.connection.client() as client:
        box = Sandbox.connect(sandbox, client=client)
        variables = output.pairs(env or [], option="--env")
        if detach:
            process = box.start(
                output.as_command(command),
                stdin=False,
                detach=True,
                timeout=timeout,
                env=variables,
                cwd=cwd,
                user=user,
                shell=shell,
            )
            process.close()
            output.show({"op_id": process.op_id}, json=json, text=process.op_id)
            return 0
        return _run(
            box,
            command,
            env=variables,
            timeout=timeout,
            cwd=cwd,
            user=user,
            shell=shell,
            stdin=stdin,
            json=json,
        )


def _run(
    box: Sandbox,
    command: list[str],
    *,
    timeout: float | None,
    cwd: str | None,
    user: str | None,
    shell: str | None,
    stdin: bool,
    json: bool,
    env: dict[str, str] | None = None,
) -> int:
    data = sys.stdin.buffer.read() if stdin else None
    line = output.as_command(command)
    with output.refusal_is_said(shown=not json):
        if json:
            result = box.exec(line, timeout=timeout, env=env, cwd=cwd, user=user, shell=shell, stdin=data)
            print(json_module.dumps({**output.plain(result), "sandbox_id": box.id}, ensure_ascii=False))
            return output.command_code(result)
        with box.exec(
            line, timeout=timeout, env=env, cwd=cwd, user=user, shell=shell, stdin=data, stream=True
        ) as events:
            for event in events:
                if isinstance(event, Exit):
                    return _ended(event)
                _write(event)
    return output.LOST


def _write(event: Stdout | Stderr) -> None:
    stream = sys.stdout.buffer if isinstance(event, Stdout) else sys.stderr.buffer
    try:
        stream.write(event.data)
        stream.flush()
    except BrokenPipeError:
        raise typer.Exit(141) from None  # like `yes | head` in a shell


def _ended(event: Exit) -> int:
    if event.verdict not in ("exited", "signaled"):
        print(f"sandlot: {event.message or 'the command was ended'} ({event.verdict})", file=sys.stderr)
    if event.truncated:
        print("sandlot: the output exceeded the limit and was truncated", file=sys.stderr)
    return output.command_code(event)


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
