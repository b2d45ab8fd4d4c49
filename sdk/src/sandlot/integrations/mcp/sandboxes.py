"""The tools for sandboxes: create, find and delete them, expose their ports, keep their files as checkpoints."""

from __future__ import annotations

from copy import copy
from typing import Any

from sandlot._async.sandbox import AsyncSandbox
from sandlot.integrations.mcp.schema import Schema, flag, integer, number, out, result, text, texts, variables
from sandlot.integrations.mcp.schema import arguments as takes
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.tool import LONGEST, LONGEST_CALL, SANDBOX, Arguments, Tool
from sandlot.models import SandboxInfo

_LISTED = 100
_LIFE, _IDLE, _WAIT = 3600.0, 1800.0, 300.0  # default seconds


async def _create_sandbox(session: Session, given: Arguments) -> dict[str, Any]:
    if "allow" in given and "deny" in given:
        raise ValueError("allow: give either allow or deny, not both")
    life = given.get("timeout_seconds", _LIFE)
    own = ("pool", "name", "env", "workdir", "cpu", "memory", "disk", "gpu_type", "allow", "deny")
    wait = given.get("wait_seconds", _WAIT)
    client = copy(session.client)
    client.busy_for = min(client.busy_for, wait)
    session.used = True
    box = await AsyncSandbox.create(
        # An image beside a checkpoint or a pool must be theirs.
        given.get("image", None if "checkpoint" in given or "pool" in given else session.image),
        checkpoint=given.get("checkpoint"),
        network=given.get("network", "full"),
        gpu_count=int(given["gpu_count"]) if "gpu_count" in given else None,
        labels=[*session.labels, *given.get("labels", ())],
        timeout=life,
        idle_timeout=given.get("idle_timeout_seconds", min(_IDLE, life)),
        wait=wait,
        run=session.run,
        client=client,
        **{name: given[name] for name in own if name in given},
    )
    return _info(box.info)


async def _list_sandboxes(session: Session, given: Arguments) -> dict[str, Any]:
    found = await AsyncSandbox.list(
        labels=[*([] if given.get("all") else session.labels), *given.get("labels", ())],
        active=None if given.get("ended") else True,
        limit=_LISTED,
        client=session.client,
    )
    return {"sandboxes": [_info(info) for info in found]}


async def _get_sandbox(session: Session, given: Arguments) -> dict[str, Any]:
    return _info(await session.sandbox(given["sandbox_id"]).refresh())


async def _delete_sandbox(session: Session, given: Arguments) -> dict[str, Any]:
    await session.sandbox(given["sandbox_id"]).delete()
    return {"sandbox_id": given["sandbox_id"], "deleted": True}


async def _expose_port(session: Session, given: Arguments) -> dict[str, Any]:
    port, protocol = int(given["port"]), given.get("protocol", "http")
    address = await session.sandbox(given["sandbox_id"]).expose(port, protocol=protocol)
    return {"port": port, "protocol": protocol, "address": session.told(address)}


async def _create_checkpoint(session: Session, given: Arguments) -> dict[str, Any]:
    made = await session.sandbox(given["sandbox_id"]).checkpoint(wait=given.get("wait_seconds", _WAIT))
    return {"checkpoint_id": made.id, "state": made.state, "size": made.size}


async def _delete_checkpoint(session: Session, given: Arguments) -> dict[str, Any]:
    await AsyncSandbox.delete_checkpoint(given["checkpoint_id"], client=session.client)
    return {"checkpoint_id": given["checkpoint_id"], "deleted": True}


def _info(info: SandboxInfo) -> dict[str, Any]:
    return {
        "sandbox_id": info.id,
        "status": info.status,
        "image": info.image,
        "verdict": info.verdict,
        "message": info.message,
        "timeout_seconds": info.timeout,
        "idle_timeout_seconds": info.idle_timeout,
        "created_at": info.created_at,
        "labels": list(info.labels),
        "notes": list(info.notes),
    }


_ID = out("string", "The sandbox's id, which the other tools take.")
_INFO: Schema = result(
    (),
    sandbox_id=_ID,
    status=out("string", "PENDING, RUNNING, TERMINATED, ERROR or TIMEOUT."),
    image=out("string", "The container image."),
    verdict=out(
        ["string", "null"],
        "Why it ended: deleted, idle, deadline, exited, oom, or what the infrastructure did to it. Null: it has not.",
    ),
    message=out(["string", "null"], "The same as a sentence."),
    timeout_seconds=out(["number", "null"], "Its longest life."),
    idle_timeout_seconds=out(["number", "null"], "How long it lives without a call."),
    created_at=out("string", "ISO 8601."),
    labels={"type": "array", "items": {"type": "string"}},
    notes={"type": "array", "items": {"type": "string"}},
)

TOOLS = (
    Tool(
        name="create_sandbox",
        title="Create a sandbox",
        description=(
            "Create an isolated Linux sandbox and wait until it runs. It ends, with all its files, after "
            "timeout_seconds, after idle_timeout_seconds without a call, or by delete_sandbox. If it is not ready within "
            "wait_seconds it is deleted, and the call is an error."
        ),
        takes=takes(
            image=text("A container image such as python:3.12. Default: the server's.", longest=1024),
            checkpoint=text("Start with the files of this checkpoint, in place of an image.", longest=128),
            pool=text("The warm pool to take it from.", longest=128),
            name=text("A name to recognise it by.", longest=128),
            labels=texts("Labels to find it by.", most=32, longest=128),
            env=variables("Environment variables of all its commands."),
            workdir=text("The working directory of its commands."),
            cpu=number("CPU cores.", least=0.1, most=256),
            memory=text("Memory, such as 512MiB or 2GiB.", longest=32),
            disk=text("Disk, such as 10GiB.", longest=32),
            gpu_count=integer("GPUs.", least=0, most=8),
            gpu_type=text("The type of the GPUs, such as H100.", longest=128),
            network=text("full, or none for no network at all. Default: full.", choices=("full", "none")),
            allow=texts("Only these hosts or IPv4 networks can be reached, such as pypi.org.", most=256),
            deny=texts("All but these hosts or networks can be reached; not together with allow.", most=256),
            timeout_seconds=number("Its longest life. Default: 3600.", least=1, most=LONGEST),
            idle_timeout_seconds=number(
                "How long it lives without a call. Default: 1800, at most timeout_seconds.",
                least=1,
                most=LONGEST,
            ),
            wait_seconds=number("How long to wait until it runs. Default: 300.", least=1, most=LONGEST_CALL),
        ),
        gives=_INFO,
        run=_create_sandbox,
    ),
    Tool(
        name="list_sandboxes",
        title="List sandboxes",
        description=(
            "List the sandboxes that this session has created, newest first; with all=true, all of this API key's tenant. "
            "At most 100, and only those that have not ended unless ended=true."
        ),
        takes=takes(
            all=flag("Also those that were not created here."),
            ended=flag("Also those that have ended, for about an hour."),
            labels=texts("Only those with all of these labels.", most=32, longest=128),
        ),
        gives=result((), sandboxes={"type": "array", "items": _INFO}),
        reads=True,
        run=_list_sandboxes,
    ),
    Tool(
        name="get_sandbox",
        title="Look at a sandbox",
        description="Read a sandbox's state, also of one that has ended: `verdict` and `message` say why.",
        takes=takes(("sandbox_id",), sandbox_id=SANDBOX),
        gives=_INFO,
        reads=True,
        run=_get_sandbox,
    ),
    Tool(
        name="delete_sandbox",
        title="Delete a sandbox",
        description="End a sandbox with its processes and files. One that has ended already is a success.",
        takes=takes(("sandbox_id",), sandbox_id=SANDBOX),
        gives=result((), sandbox_id=_ID, deleted=out("boolean", "Always true.")),
        destroys=True,
        repeatable=True,
        run=_delete_sandbox,
    ),
    Tool(
        name="expose_port",
        title="Expose a port",
        description=(
            "Make a port of the sandbox reachable from outside and return its address. The server in the sandbox must "
            "listen on 0.0.0.0 or 127.0.0.1. Whoever knows the address can connect. It ends with the sandbox."
        ),
        takes=takes(
            ("sandbox_id", "port"),
            sandbox_id=SANDBOX,
            port=integer("The port in the sandbox.", least=1, most=65535),
            protocol=text(
                "Default: http. The operator may have enabled no ports for tcp and udp.",
                choices=("http", "tcp", "udp"),
            ),
        ),
        gives=result(
            (),
            port=out("integer", "As in the call."),
            protocol=out("string", "As in the call."),
            address=out("string", "A URL for http, HOST:PORT for tcp and udp."),
        ),
        run=_expose_port,
    ),
    Tool(
        name="create_checkpoint",
        title="Save a sandbox's files",
        description=(
            "Save the sandbox's files (not its processes) as a checkpoint that outlives it, and wait until it is stored. "
            "create_sandbox starts others from it. Delete it with delete_checkpoint: the tenant's space is limited."
        ),
        takes=takes(
            ("sandbox_id",),
            sandbox_id=SANDBOX,
            wait_seconds=number("Default: 300.", least=1, most=LONGEST_CALL),
        ),
        gives=result(
            (),
            checkpoint_id=out("string", "For create_sandbox and delete_checkpoint."),
            state=out("string", "DURABLE."),
            size=out("integer", "Bytes of its files."),
        ),
        run=_create_checkpoint,
    ),
    Tool(
        name="delete_checkpoint",
        title="Delete a checkpoint",
        description="Delete a checkpoint; sandboxes that were created from it stay.",
        takes=takes(("checkpoint_id",), checkpoint_id=text("Its id.", longest=128, minLength=1)),
        gives=result(
            (), checkpoint_id=out("string", "As in the call."), deleted=out("boolean", "Always true.")
        ),
        destroys=True,
        run=_delete_checkpoint,
    ),
)
