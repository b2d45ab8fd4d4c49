"""Parses the server's JSON into the SDK's records; ignores unknown fields and gives absent ones a default."""

from __future__ import annotations

import json
from typing import Any, cast

from sandlot.errors import ServerError
from sandlot.models import (
    CheckpointInfo,
    ExecResult,
    Exit,
    Exposure,
    FileInfo,
    ImageFailure,
    NetworkPolicy,
    PoolInfo,
    PoolReuse,
    SandboxInfo,
    Usage,
    Verdict,
    WarmupInfo,
)
from sandlot.sandbox_events import SandboxEvent

Document = dict[str, Any]
GIB = 1 << 30
_VERDICTS = {item.value: item for item in Verdict}


def parse(body: bytes) -> Document:
    """Parse the JSON object in `body`. Raises ServerError if it is none."""
    try:
        value: object = json.loads(body) if body else {}
    except ValueError as error:
        raise ServerError(
            f"the server's answer is not JSON; is the URL a Sandlot gateway's? It begins with {body[:80]!r}"
        ) from error
    if not isinstance(value, dict):
        raise ServerError("the server's answer is not a JSON object; is the URL a Sandlot gateway's?")
    return cast(Document, value)


def verdict(value: object) -> Verdict:
    return _VERDICTS.get(str(value), Verdict.UNKNOWN)


def usage(document: Document) -> Usage:
    value: Document = document.get("usage") or {}
    return Usage(
        value.get("queued") or 0.0,
        value.get("wall") or 0.0,
        value.get("cpu") or 0.0,
        value.get("peak_memory") or 0,
    )


def exec_result(document: Document, *, op_id: str) -> ExecResult:
    """Parse the response of a buffered exec."""
    return ExecResult(
        document.get("stdout") or "",
        document.get("stderr") or "",
        _exit_code(document),
        verdict(document.get("verdict", "exited")),
        document.get("op_id") or op_id,
        document.get("signal"),
        bool(document.get("truncated")),
        document.get("stdout_bytes") or 0,
        document.get("stderr_bytes") or 0,
        document.get("message"),
        usage(document),
    )


def _exit_code(document: Document) -> int:
    value = document.get("exit_code")
    return -1 if value is None else int(value)


def exit_event(document: Document, *, op_id: str) -> Exit:
    """Parse an op document or the last frame of a stream."""
    return Exit(
        exit_code=_exit_code(document),
        verdict=verdict(document.get("verdict")),
        op_id=document.get("op_id") or op_id,
        signal=document.get("signal"),
        truncated=bool(document.get("truncated")),
        stdout_bytes=document.get("stdout_bytes") or 0,
        stderr_bytes=document.get("stderr_bytes") or 0,
        message=document.get("message"),
        usage=usage(document),
    )


def result_from_exit(event: Exit, *, stdout: bytes, stderr: bytes) -> ExecResult:
    return ExecResult(
        stdout=stdout.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
        exit_code=event.exit_code,
        verdict=event.verdict,
        op_id=event.op_id,
        signal=event.signal,
        truncated=event.truncated,
        stdout_bytes=event.stdout_bytes,
        stderr_bytes=event.stderr_bytes,
        message=event.message,
        usage=event.usage,
    )


def _gib(value: object) -> int:
    return round(float(value) * GIB) if isinstance(value, int | float) else 0


def _minutes(value: object) -> float | None:
    return float(value) * 60 if isinstance(value, int | float) and value >= 0 else None


def _seconds(document: Document, *, seconds: str, minutes: str) -> float | None:
    value = document.get(seconds)
    if isinstance(value, int | float):
        return float(value) if value >= 0 else None
    return _minutes(document.get(minutes))


def network_policy(document: Document) -> NetworkPolicy:
    """Parse the control API's egress policy."""
    lists: Document = document.get("policy") or {}
    allow, deny = lists.get("allowlist"), lists.get("denylist")
    return NetworkPolicy(
        allow=None if allow is None else tuple(allow),
        deny=None if deny is None else tuple(deny),
        generation=int(document.get("generation") or 0),
    )


def sandbox_info(document: Document) -> SandboxInfo:
    """Parse the control API's sandbox document."""
    network = document.get("network")
    if network is None:
        network = "none" if document.get("networkAccess") is False else "full"
    timings: Document = document.get("timings") or {}
    return SandboxInfo(
        id=str(document.get("id", "")),
        name=document.get("name") or "",
        image=document.get("dockerImage") or "",
        status=document.get("status") or "PENDING",
        verdict=document.get("verdict"),
        message=document.get("verdictMessage") or document.get("errorMessage"),
        cpu=float(document.get("cpuCores") or 0),
        memory=_gib(document.get("memoryGB")),
        disk=_gib(document.get("diskSizeGB")),
        gpu_count=document.get("gpuCount") or 0,
        gpu_type=document.get("gpuType"),
        network=network,
        timeout=_seconds(document, seconds="timeoutSeconds", minutes="timeoutMinutes"),
        idle_timeout=_seconds(document, seconds="idleTimeoutSeconds", minutes="idleTimeoutMinutes"),
        labels=tuple(document.get("labels") or ()),
        run=document.get("run"),
        run_epoch=document.get("runEpoch"),
        group=document.get("group"),
        service=document.get("service"),
        created_at=document.get("createdAt") or "",
        started_at=document.get("startedAt"),
        ended_at=document.get("terminatedAt"),
        exit_code=document.get("exitCode"),
        pool_hit=bool(document.get("poolHit")),
        cold_reason=document.get("coldReason"),
        timings={str(key): float(value) for key, value in timings.items() if isinstance(value, int | float)},
        notes=tuple(document.get("notes") or ()),
        queue_position=document.get("queuePosition"),
        estimated_wait=document.get("estimatedWaitSeconds"),
        pending_message=document.get("pendingMessage"),
    )


def file_info(document: Document) -> FileInfo:
    return FileInfo(
        path=document.get("path") or "",
        type=document.get("type") or "other",
        size=document.get("size") or 0,
        mode=document.get("mode") or "",
        uid=document.get("uid") or 0,
        gid=document.get("gid") or 0,
        user=document.get("user"),
        group=document.get("group"),
        mtime=document.get("mtime") or 0.0,
        target=document.get("target"),
    )


def exposure(document: Document) -> Exposure:
    return Exposure(
        id=document.get("exposure_id") or "",
        sandbox_id=document.get("sandbox_id") or "",
        port=document.get("port") or 0,
        protocol=str(document.get("protocol") or "HTTP").lower(),
        url=document.get("url") or "",
        name=document.get("name"),
        endpoint=document.get("external_endpoint") or document.get("tls_socket"),
    )


def checkpoint_info(document: Document) -> CheckpointInfo:
    return CheckpointInfo(
        id=str(document.get("id", "")),
        sandbox_id=document.get("sandbox_id") or "",
        state=document.get("state") or "PENDING",
        image=document.get("docker_image") or "",
        disk=document.get("disk_size_bytes") or 0,
        size=document.get("occupied_bytes") or 0,
        stored=document.get("stored_bytes"),
        parent_id=document.get("parent_id"),
        depth=document.get("depth") or 0,
        error=document.get("error"),
        created_at=document.get("created_at") or "",
        name=document.get("name"),
        metadata=dict(document.get("metadata") or {}),
        paths=tuple(document.get("paths") or ()),
        without=tuple(document.get("without") or ()),
        failed_by_files=bool(document.get("failed_by_files")),
        entries=document.get("entries") or 0,
        origin_id=document.get("origin_id"),
    )


def pool_info(document: Document) -> PoolInfo:
    return PoolInfo(
        name=document.get("name") or "",
        image=document.get("image") or "",
        size=document.get("size") or 0,
        ready=document.get("ready") or 0,
        starting=document.get("starting") or 0,
        cpu=float(document.get("cpu_cores") or 0),
        memory=_gib(document.get("memory_gb")),
        disk=_gib(document.get("disk_size_gb")),
        pids=document.get("pids") or 0,
        failures=document.get("failures") or 0,
        owner=document.get("owner"),
        message=document.get("message"),
        min_size=document.get("min_size"),
        max_size=document.get("max_size"),
        gpu_count=document.get("gpu_count") or 0,
        gpu_type=document.get("gpu_type"),
        runtime_class=document.get("runtime_class"),
        reuse=_reuse(document.get("reuse") or {}),
    )


def warmup_info(document: Document) -> WarmupInfo:
    errors: list[Document] = document.get("errors") or []
    return WarmupInfo(
        id=str(document.get("id", "")),
        tenant=document.get("tenant") or "",
        state=document.get("state") or "PENDING",
        images=document.get("images") or 0,
        ready=document.get("images_ready") or 0,
        failed=document.get("images_failed") or 0,
        copies=document.get("copies") or 0,
        copies_ready=document.get("copies_ready") or 0,
        bytes=document.get("bytes") or 0,
        seconds_left=document.get("seconds_left"),
        errors=tuple(
            ImageFailure(error.get("image") or "", error.get("message") or "", error.get("node"))
            for error in errors
        ),
        message=document.get("message"),
        created_at=document.get("created_at") or "",
        finished_at=document.get("finished_at"),
    )


def sandbox_event(document: Document, *, cursor: str) -> SandboxEvent:
    data: Document = document.get("data") or {}
    return SandboxEvent(
        id=str(document["id"]),
        type=str(document["type"]),
        timestamp=document.get("timestamp") or "",
        sandbox_id=str(data["sandboxId"]),
        status=data.get("status") or "",
        cursor=cursor,
        name=data.get("name") or "",
        run=data.get("run"),
        labels=tuple(data.get("labels") or ()),
        place=data.get("place"),
        verdict=data.get("verdict"),
        exit_code=data.get("exitCode"),
        message=data.get("message"),
    )


def _reuse(document: Document) -> PoolReuse:
    usual = PoolReuse()
    return PoolReuse(
        policy=document.get("policy") or usual.policy,
        max_uses=document.get("max_uses") or usual.max_uses,
        max_age=float(document.get("max_age") or usual.max_age),
    )
