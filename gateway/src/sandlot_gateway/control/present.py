"""Renders a sandbox as the JSON of the API."""

from __future__ import annotations

import math
import re
import shlex
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from fastapi import Request, Response
from sandlot_contract.statuses import Status

from sandlot_gateway.control.services import Services
from sandlot_gateway.engine.trouble import Pools
from sandlot_gateway.sandboxes import Sandbox, Spec

NO_STORE = {"cache-control": "no-store"}  # variables and output must not stay in a browser's cache
_OLD_PRIME = re.compile(r"prime-sandboxes/0\.2\.(\d{1,6})\b")
_TOKEN_SLACK = 3600.0  # seconds that a client's token is valid beyond its sandbox's deadline
_TOKEN_UNLIMITED = 30 * 86400.0  # validity in seconds if the sandbox has no deadline


def json_response(document: Any, *, status: int = 200) -> Response:
    """Return a JSON response without validating it again, which takes 50 ms for a listing of 1,000."""
    return Response(
        msgspec.json.encode(document), status_code=status, media_type="application/json", headers=NO_STORE
    )


def iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Place(NamedTuple):
    """Where a PENDING sandbox is: its position in the queue, the seconds it may wait there, and what it waits for."""

    position: int | None
    wait: float | None
    progress: str | None


def place_of(sandbox: Sandbox, have: Services, pools: Pools | None = None) -> Place:
    """Return where a sandbox is; `pools` as in `engine.trouble`, for a caller that asks for many."""
    lifecycle = have.lifecycle
    wait = lifecycle.estimated_wait(sandbox)
    return Place(
        lifecycle.position(sandbox),
        None if wait is None else round(wait, 1),
        lifecycle.progress(sandbox, pools),
    )


def sandbox_document(
    sandbox: Sandbox,
    *,
    user_agent: str,
    place: Place | None = None,
    auth: dict[str, Any] | None = None,
) -> dict[str, Any]:
    spec = sandbox.spec
    extra = spec.extra
    old = _old_prime(user_agent)
    document = {
        "id": sandbox.id,
        "name": spec.name,
        "dockerImage": spec.image,
        "imageDigest": sandbox.image_digest,
        "startCommand": _start_command(spec, user_agent, old=old),
        "cpuCores": _size(spec.cpu_cores, old=old),
        "memoryGB": _size(spec.memory_gb, old=old),
        "diskSizeGB": _size(spec.disk_size_gb, old=old),
        "diskMountPath": spec.workdir or "/",
        "gpuCount": spec.gpu_count,
        "gpuType": spec.gpu_type,
        "vm": spec.vm,
        "networkAccess": spec.network == "full",
        "networkAllowlist": [] if spec.network == "none" else spec.egress and spec.egress.allowlist,
        "networkDenylist": spec.egress and spec.egress.denylist,
        "status": sandbox.status,
        "timeoutMinutes": spec.timeout_minutes,
        "idleTimeoutMinutes": math.ceil(spec.idle_timeout / 60) if spec.idle_timeout is not None else None,
        "terminationReason": sandbox.reason,
        "environmentVars": spec.env,
        "secrets": dict.fromkeys(spec.secret_names, "***"),
        "advancedConfigs": extra.get("advanced_configs"),
        "labels": spec.labels,
        "createdAt": iso(sandbox.created_at),
        "updatedAt": iso(sandbox.updated_at),
        "startedAt": iso(sandbox.started_at),
        "terminatedAt": iso(sandbox.ended_at),
        "exitCode": sandbox.exit_code,
        "errorType": sandbox.error_type,
        "errorMessage": error_message(sandbox),
        "userId": sandbox.tenant,
        "teamId": extra.get("team_id"),
        "kubernetesJobId": None,
        "region": None,
        "registryCredentialsId": None,
        "pendingImageBuildId": None,
        "verdict": sandbox.verdict,
        "verdictMessage": sandbox.message,
        "poolHit": sandbox.pool_hit,
        "coldReason": sandbox.cold_reason,
        "timings": {
            "queued": round(sandbox.queued, 6),
            "start": round(sandbox.start, 6),
            "claim": round(sandbox.claim, 6),
        },
        "notes": sandbox.notes,
        "network": spec.network,
        "timeoutSeconds": spec.timeout,
        "idleTimeoutSeconds": spec.idle_timeout,
        "workdir": spec.workdir,
        "user": spec.user,
        "pool": spec.pool,
        "run": spec.run,
        "runEpoch": spec.run_epoch,
        "group": spec.group.id if spec.group is not None else None,
        "service": spec.services and spec.services.own,
        "secretRefs": spec.secret_refs,
        "queuePosition": place and place.position,
        "estimatedWaitSeconds": place and place.wait,
        "pendingMessage": place.progress if place and sandbox.status is Status.PENDING else None,
    }
    if auth is not None:
        document["gatewayAuth"] = auth
    return document


def error_message(sandbox: Sandbox) -> str | None:
    if sandbox.status not in (Status.ERROR, Status.TIMEOUT):
        return None
    return sandbox.message or f"the sandbox ended: {sandbox.verdict}"


def gateway_auth(sandbox: Sandbox, *, have: Services, request: Request) -> dict[str, Any]:
    """Return the data plane's address and a token that is valid until an hour after the sandbox's deadline."""
    now = have.tokens.now()
    lasts = _TOKEN_UNLIMITED
    if sandbox.spec.timeout is not None:
        begin = sandbox.started_at or now
        lasts = max(begin + sandbox.spec.timeout - now, 0.0) + _TOKEN_SLACK
    expires_at = int(now + lasts)
    return {
        "token": have.tokens.client(sandbox.id, sandbox.tenant, expires_at),
        "gateway_url": base_url(have=have, request=request),
        "user_ns": "sbx",
        "job_id": sandbox.id,
        "expires_at": iso(expires_at),
        "is_vm": sandbox.spec.vm,
    }


def base_url(*, have: Services, request: Request) -> str:
    """Return the gateway's URL without a trailing slash, since old clients append paths to it."""
    return (have.settings.public_url or f"{request.url.scheme}://{request.url.netloc}").rstrip("/")


def is_old_prime(user_agent: str) -> bool:
    """Return whether the client is of Prime's first generation, which polls each sandbox alone."""
    return _old_prime(user_agent) is not None


def _old_prime(user_agent: str) -> int | None:
    """Return the last number of a first-generation client's version, 13 for 0.2.13; None for others."""
    found = _OLD_PRIME.match(user_agent)
    return None if found is None else int(found[1])


def _size(value: float, *, old: int | None) -> float:
    """Round up for prime-sandboxes up to 0.2.13, which parses integers only: one 0.5 would fail its listing."""
    return math.ceil(value) if old is not None and old < 14 else value


def _start_command(spec: Spec, user_agent: str, *, old: int | None) -> Any:
    command = spec.start_command
    if command is None:
        return None
    if isinstance(command, str):
        # A newer prime-sandboxes cannot parse a string here; its whole listing would fail.
        return command if old is not None or user_agent.startswith("sandlot") else None
    if old is not None and old < 35:
        return shlex.join(command)
    return {"executable": command[0], "args": command[1:]}
