"""run, exec: run a command in a new sandbox or in one that exists, and exit with its code."""

from __future__ import annotations

import json as json_module
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sandlot.cli import output
from sandlot.cli.options import Command, Cwd, Env, Interactive, Secret, SecretRef, Shell, Timeout, User
from sandlot.models import Exit, Stderr, Stdout

if TYPE_CHECKING:
    from sandlot import Sandbox

AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def register(app: typer.Typer) -> None:
    app.command(context_settings=AS_GIVEN)(run)
    app.command("exec", context_settings=AS_GIVEN)(execute)


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
