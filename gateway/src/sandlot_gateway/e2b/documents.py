"""Renders sandboxes in E2B's forms, and reads metadata, which are labels here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox

# Features of envd that the SDKs ask for: octet-stream uploads and close_stdin, but no file metadata (0.6.2).
ENVD_VERSION = "0.6.1"
CLIENT_ID = "sandlot"
_NO_DEADLINE = 10 * 366 * 86400.0  # seconds from the start, for a sandbox without a time limit
_PLAIN = " !#$&'()*+,/:;<>?@[]^`{|}\"\\"  # besides letters, digits and _.-~


def label_of(key: str, value: str) -> str:
    """Return the label of one entry of the metadata; the first `=` ends the key."""
    return f"{quote(key, safe=_PLAIN)}={value}"


def metadata_of(labels: Iterable[str]) -> dict[str, str]:
    """Return the metadata in labels; those of other clients may have no `=`."""
    pairs = (label.partition("=") for label in labels)
    return {unquote(key): value for key, found, value in pairs if found}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def id_of(sandbox: Sandbox) -> SandboxId:
    """Return the id that the sandbox's clients have: one that continues a paused one has another id itself."""
    return sandbox.spec.continues or sandbox.id


def template_of(sandbox: Sandbox) -> str:
    spec = sandbox.spec
    return spec.e2b.id if spec.e2b is not None else spec.pool or spec.checkpoint or spec.image


def begun(
    sandbox: Sandbox, *, tokens: tuple[str, str], domain: str | None, alias: str | None
) -> dict[str, Any]:
    """Return the answer to a create or connect; `tokens`: of envd, and of apps."""
    return {
        "templateID": template_of(sandbox),
        "sandboxID": id_of(sandbox),
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": tokens[0],
        "trafficAccessToken": tokens[1],
        "domain": domain,
        **({} if alias is None else {"alias": alias}),
    }


def listed(
    sandbox: Sandbox, *, end_at: float | None, alias: str | None, state: str = "running"
) -> dict[str, Any]:
    """Return a sandbox as a list has it; `end_at` in Unix seconds, None: it has no time limit."""
    started = sandbox.started_at or sandbox.created_at
    spec = sandbox.spec
    return {
        "templateID": template_of(sandbox),
        "sandboxID": id_of(sandbox),
        "clientID": CLIENT_ID,
        "startedAt": iso(started),
        "endAt": iso(started + _NO_DEADLINE if end_at is None else end_at),
        "cpuCount": max(1, round(spec.cpu_cores)),
        "memoryMB": round(spec.memory_gb * 1024),
        "diskSizeMB": round(spec.disk_size_gb * 1024),
        "state": state,
        "envdVersion": ENVD_VERSION,
        "metadata": metadata_of(spec.labels),
        **({} if alias is None else {"alias": alias}),
    }


def detail(
    sandbox: Sandbox, *, end_at: float | None, alias: str | None, state: str, token: str, domain: str | None
) -> dict[str, Any]:
    """Return a sandbox by itself."""
    return {
        **listed(sandbox, end_at=end_at, alias=alias, state=state),
        "envdAccessToken": token,
        "domain": domain,
        "allowInternetAccess": sandbox.spec.network != "none",
        "lifecycle": {"onTimeout": "pause" if sandbox.spec.auto_pause else "kill", "autoResume": False},
    }


def page_token(sandbox: Sandbox) -> str:
    """Return the token of the page after this sandbox."""
    return json.dumps([sandbox.created_at, sandbox.id]).encode().hex()


def page_after(token: str) -> tuple[float, str]:
    """Return the place that a token stands for. Raises ValueError."""
    match json.loads(bytes.fromhex(token)):
        case [float() | int() as at, str() as sandbox_id]:
            return float(at), sandbox_id
        case _:
            raise ValueError("no such page")
