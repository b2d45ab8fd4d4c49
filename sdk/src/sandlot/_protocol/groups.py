"""Builds the bodies of groups of creates, and of forks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandlot._protocol import calls, checks
from sandlot._protocol.checks import Command

DEFAULTS: dict[str, Any] = {
    "image": None,
    "checkpoint": None,
    "name": None,
    "env": None,
    "secrets": None,
    "secret_refs": None,
    "timeout": 3600.0,
    "idle_timeout": None,
    "network": "full",
    "allow": None,
    "deny": None,
    "cpu": None,
    "memory": None,
    "disk": None,
    "pids": None,
    "gpu_count": None,
    "gpu_type": None,
    "labels": (),
    "run": None,
    "run_id": None,
    "pool": None,
    "start_command": None,
    "run_image_command": False,
    "stop_signal": None,
    "stop_grace": None,
    "workdir": None,
    "user": None,
}


def members(of: int | Sequence[Mapping[str, Any]], create: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the members: `of` sandboxes with these arguments, or one kind for each mapping, which come first."""
    kinds = [{"count": of}] if isinstance(of, int) else [dict(kind) for kind in of]
    if not kinds:
        raise ValueError("of: must be a number of sandboxes, or name at least one kind of them")
    return [_member({**create, **kind}) for kind in kinds]


def _member(given: dict[str, Any]) -> dict[str, Any]:
    count, service, ports = given.pop("count", 1), given.pop("service", None), given.pop("ports", None)
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"count: {count!r} is not 1 or more")
    unknown = sorted(given.keys() - DEFAULTS.keys())
    if unknown:
        raise ValueError(
            f"{unknown[0]}: not an argument of create that a member of a group has; leave it out"
        )
    document = calls.create_document(**{**DEFAULTS, **given}, idempotency_key="", wait_seconds=0.0)
    del document["idempotency_key"], document["wait_seconds"]
    if service is not None:
        document["service"] = service
    if ports is not None:
        document["ports"] = list(ports)
    return {**document, "count": count}


def forks(
    n: int,
    *,
    start_command: bool | Command,
    name: str | None,
    labels: Sequence[str] | None,
    secrets: Mapping[str, str] | None,
    timeout: float | None,
) -> dict[str, Any]:
    """Build the body of a fork; what is None stays as the sandbox has it."""
    if n < 1:
        raise ValueError(f"n: {n!r} is not 1 or more")
    document: dict[str, Any] = {"count": n}
    if start_command is True:
        document["same_start_command"] = True
    elif start_command is not False:
        document["start_command"] = checks.argv(start_command)
    if name is not None:
        document["name"] = name
    if labels is not None:
        document["labels"] = checks.words(labels, name="labels")
    if secrets:
        document["secrets"] = checks.strings(secrets, name="secrets")
    if timeout is not None:
        document["timeout_seconds"] = checks.seconds(timeout, name="timeout")
    return document
