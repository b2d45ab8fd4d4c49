"""What several tests ask of a sandbox, as a condition to wait for or as a step on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.sidecar.support import Sidecar


async def usable(box: Sidecar) -> None:
    answer = await asyncio.wait_for(box.exec("echo usable"), 50)
    assert (answer["stdout"], answer["verdict"]) == ("usable\n", "exited")


async def has_process(box: Sidecar, op_id: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["pid"] is not None


async def has_running(box: Sidecar, ops: int) -> bool:
    return (await box.instance("GET", "/v1/state")).json()["ops_running"] == ops


def exists(path: str) -> bool:
    return Path(path).exists()


async def processes_like(box: Sidecar, pattern: str) -> int:
    """How many processes in the sandbox match."""
    listing = await box.exec("for d in /proc/[0-9]*; do tr '\\0' ' ' < $d/cmdline 2>/dev/null; echo; done")
    return sum(pattern in line and "for d in" not in line for line in listing["stdout"].splitlines())


async def has_status(box: Sidecar, path: str, wanted: int) -> bool:
    return (await box.call("GET", path)).status_code == wanted


async def put(box: Sidecar, path: str, content: bytes, **query: str) -> None:
    answer = await box.call("PUT", "/v1/files", params={"path": path, **query}, content=content)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"path": path, "size": len(content)}


async def no_leftover(box: Sidecar, directory: str) -> bool:
    entries = (await box.call("GET", "/v1/files/list", params={"path": directory})).json()["entries"]
    return not [entry for entry in entries if ".sandlot-" in entry["path"]]


async def has_output(box: Sidecar, op_id: str, text: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}/output")).text == text


async def pass_on(box: Sidecar, **claim: object) -> None:
    """Reset the sandbox, and claim it for another owner."""
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    assert answer.json().get("equal") is True, answer.text
    box.token = "token-of-the-next-owner"
    await box.claim(sandbox_id="sb-next", **claim)
