"""The RPCs of process.Process: each as requests to the sandbox's sidecar, whose ops are the processes.

The gateway keeps nothing of them: a process outlives its stream and the gateway, and any gateway serves it.
"""

from __future__ import annotations

import re
import secrets
import signal
from typing import Any

from . import events, messages
from .events import ProcessEvents
from .failures import EnvdFailure, invalid
from .messages import Selected, Selector, Start, read
from .rpc_stream import RpcStream, copied
from .sidecar_call import SidecarCall

_TAG = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_KILLED_WITHIN = 2  # seconds
_NAME = "e2b-"  # begins the ids of ops; the tag follows after a colon
CONTEXT = "e2b-code:"  # begins those of the code interpreter; the context's name follows


async def start(call: SidecarCall, body: bytes, stream: RpcStream, *, timeout_ms: int | None) -> None:
    """Run a process and send its events. It goes on without its client until its time limit."""
    spec = start_spec(read(body, Start), user=call.user, timeout_ms=timeout_ms)
    patience = None if timeout_ms is None else timeout_ms / 1000
    connection = await call.open("POST", "/v1/ops", json=spec, patience=patience)
    await copied(call, connection, stream, ProcessEvents(pty="pty" in spec))


async def connect(call: SidecarCall, body: bytes, stream: RpcStream) -> None:
    """Send the events of a running process: what no stream has delivered yet, and all that follows."""
    op = await _find(call, read(body, Selected).process)
    connection = await call.open("GET", f"/v1/ops/{op['op_id']}/stream?resume=1")
    stream.add(events.start(op["pid"]))
    await copied(call, connection, stream, ProcessEvents(pty=bool(op["spec"].get("pty")), told=True))


async def send_input(call: SidecarCall, body: bytes) -> dict[str, Any]:
    message = read(body, Selected)
    if message.input is None:
        raise invalid("input", "is required")
    await write(call, await op_id(call, message.process), message.input.data())
    return {}


async def close_stdin(call: SidecarCall, body: bytes) -> dict[str, Any]:
    found = await op_id(call, read(body, Selected).process)
    await write(call, found, b"", eof=True)
    return {}


async def send_signal(call: SidecarCall, body: bytes) -> dict[str, Any]:
    """Send SIGKILL to the process and all its children, or SIGTERM to the process, which can end them itself."""
    message = read(body, Selected)
    number = message.signal_number()
    kills = number == signal.SIGKILL
    found = await op_id(call, message.process)
    answer = await call.fetch("POST", f"/v1/ops/{found}/signal", json={"signal": number, "tree": kills})
    if answer.status != 200 and answer.json().get("error") != "op_ended":
        raise call.refused(answer.status, answer.body)
    if kills:
        # The process would else be found again by a call right after this one.
        await call.fetch("GET", f"/v1/ops/{found}?wait={_KILLED_WITHIN}")
    return {}


async def update(call: SidecarCall, body: bytes) -> dict[str, Any]:
    message = read(body, Selected)
    size = messages.terminal_size(message.pty)
    await call.json("POST", f"/v1/ops/{await op_id(call, message.process)}/resize", json=size)
    return {}


async def list_(call: SidecarCall, body: bytes) -> dict[str, Any]:
    read(body, messages.Nothing)
    return {"processes": [_info(op) for op in await _running(call)]}


async def op_id(call: SidecarCall, selector: Selector) -> str:
    """Return the id of a running process' op. Raises EnvdFailure."""
    return (await _find(call, selector))["op_id"]


async def write(call: SidecarCall, found: str, data: bytes, *, eof: bool = False) -> None:
    """Write to a process' input; wait while its pipe is full."""
    await call.json("POST", stdin_target(found) + ("&eof=1" if eof else ""), body=data)


def stdin_target(found: str) -> str:
    """Return the target of a request that writes to an op's input once, though it may be sent twice."""
    return f"/v1/ops/{found}/stdin?id={secrets.token_hex(16)}"


def start_spec(message: Start, *, user: str | None, timeout_ms: int | None) -> dict[str, Any]:
    """Return the body of `POST /v1/ops`. Raises EnvdFailure."""
    process = message.process
    if not process.cmd:
        raise invalid("process.cmd", "is required")
    name = _NAME + secrets.token_hex(8)
    if message.tag is not None:
        if not _TAG.match(message.tag):
            raise invalid("tag", "must be 1 to 100 characters of A-Z a-z 0-9 . _ -")
        name += f":{message.tag}"
    spec: dict[str, Any] = {
        "id": name,
        "command": [process.cmd, *(process.args or ())],
        "env": process.envs or {},
        "detach": True,
    }
    if process.cwd:
        spec["cwd"] = process.cwd
    if user is not None:
        spec["user"] = user
    if message.pty is not None:
        spec["pty"] = messages.terminal_size(message.pty)
    if message.pty is not None or message.stdin is not False:  # clients before `stdin` expect an input
        spec["stdin"] = True
    if timeout_ms is not None:
        spec["timeout"] = timeout_ms / 1000
    return spec


async def _running(call: SidecarCall) -> list[dict[str, Any]]:
    ops = (await call.json("GET", "/v1/ops?spec=1"))["ops"]
    return [
        op
        for op in ops
        if op["state"] == "running"
        and op["spec"] is not None
        and op["pid"]
        and not op["op_id"].startswith(CONTEXT)  # no process that a client has started
    ]


async def _find(call: SidecarCall, selector: Selector) -> dict[str, Any]:
    if (selector.pid is None) == (selector.tag is None):
        raise invalid("process", "set either pid or tag")
    for op in await _running(call):
        if op["pid"] == selector.pid or (selector.tag is not None and _tag(op["op_id"]) == selector.tag):
            return op
    wanted = f"pid {selector.pid}" if selector.tag is None else f"tag {selector.tag[:100]!r}"
    raise EnvdFailure("not_found", f"no running process has the {wanted}: it has ended, or never ran here")


def _tag(name: str) -> str | None:
    _, colon, tag = name.partition(":")
    return tag if colon and name.startswith(_NAME) else None


def _info(op: dict[str, Any]) -> dict[str, Any]:
    spec = op["spec"]
    command = spec["command"]
    argv = command if isinstance(command, list) else ["/bin/sh", "-c", command]
    config: dict[str, Any] = {"cmd": argv[0], "args": argv[1:], "envs": spec["env"]}
    if spec["cwd"] is not None:
        config["cwd"] = spec["cwd"]
    info: dict[str, Any] = {"config": config, "pid": op["pid"]}
    if (tag := _tag(op["op_id"])) is not None:
        info["tag"] = tag
    return info
