"""Who may own the instance: a claim's body checked, and compared with the one that is held."""

from __future__ import annotations

import time
from _operator import _compare_digest as compare_digest

from ..core.errors import ApiError, bad_input
from . import fields
from .egress import body as egress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .record import Record

NAMES = (
    "sandbox_id", "token", "tenant", "env", "secrets", "limits", "network", "egress", "timeout", "idle_timeout",
    "workdir", "start_command", "meta", "restore",
)  # fmt: skip


def parse(body: dict[str, Any]) -> dict[str, Any]:
    """The claim's body with every field checked and every default filled in. Raises a 400."""
    claim: dict[str, Any] = dict.fromkeys(NAMES)
    for name, limit in (("sandbox_id", 128), ("token", 4096), ("tenant", 256)):
        claim[name] = fields.text(body, name, required=name != "tenant", limit=limit)
        if claim[name] == "" or (name == "token" and not claim[name].isascii()):
            raise bad_input(f"{name} must not be empty", field=name)
    claim["env"] = fields.environment(body, "env")
    claim["secrets"] = fields.environment(body, "secrets")
    claim["limits"] = _limits(fields.mapping(body, "limits"))
    claim["network"] = fields.text(body, "network", default="full")
    if claim["network"] not in ("full", "none"):
        raise bad_input("network must be full or none", field="network")
    asked = fields.mapping(body, "egress")
    claim["egress"] = egress.parse(asked) if asked else None
    if claim["egress"] is not None and claim["network"] != "full":
        raise bad_input("egress needs a network", field="egress")
    claim["timeout"] = fields.seconds(body, "timeout")
    claim["idle_timeout"] = fields.seconds(body, "idle_timeout")
    claim["workdir"] = fields.text(body, "workdir", limit=4096) or None
    if claim["workdir"] is not None and not claim["workdir"].startswith("/"):
        raise bad_input("workdir must be an absolute path", field="workdir")
    claim["start_command"] = fields.command(body, "start_command", required=False)
    claim["meta"] = fields.document(body, "meta")
    claim["restore"] = fields.flag(body, "restore", default=False)
    return claim


def _limits(limits: dict[str, Any]) -> dict[str, float | int]:
    named = {f"limits.{name}": value for name, value in limits.items()}
    result: dict[str, float | int] = {}
    cpu = fields.number(named, "limits.cpu", minimum=0.01, maximum=4096)
    if cpu is not None:
        result["cpu"] = cpu
    for name, minimum in (("memory", 1 << 20), ("pids", 1), ("disk", 1 << 16)):
        value = fields.integer(named, f"limits.{name}", minimum=minimum)
        if value is not None:
            result[name] = value
    return result


def check_generation(record: Record, generation: int | None) -> None:
    """Raises 409 `stale_generation` where the caller means another generation than the present one; None: any."""
    if generation is not None and generation != record.generation:
        raise ApiError(
            409, "stale_generation", f"this instance is at generation {record.generation}", field="generation",
            generation=record.generation,
        )  # fmt: skip


def decide(record: Record, claim: dict[str, Any], *, generation: int | None) -> bool:
    """Compare and set: True when this claim wins now, False when it is the one that is held already.

    Raises 409 `stale_generation` or `already_claimed`.
    """
    check_generation(record, generation)
    held = record.claim
    if held is None:
        record.claim = claim
        record.claimed_at = time.time()
        return True
    if _same_token(held, claim) and held == claim:
        return False
    extra: dict[str, Any] = {}
    if claim["tenant"] is not None and claim["tenant"] == held["tenant"]:
        extra["sandbox_id"] = held["sandbox_id"]
    raise ApiError(409, "already_claimed", "this instance has an owner", **extra)


def _same_token(held: dict[str, Any], claim: dict[str, Any]) -> bool:
    return compare_digest(held["token"], claim["token"])
