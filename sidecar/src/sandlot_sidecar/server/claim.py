"""Validates the body of a claim."""

from __future__ import annotations

from sandlot_contract.stop_grace import MAX_STOP_GRACE

from ..core.errors import bad_input
from . import fields, image
from .egress import body as egress
from .links import body as links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = (
    "sandbox_id", "token", "tenant", "env", "secrets", "limits", "network", "egress", "timeout", "idle_timeout",
    "workdir", "user", "start_command", "stop_signal", "stop_grace", "meta", "restore", "image", "services",
)  # fmt: skip


def parse(body: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return the claim with every field validated and every default filled in. `root`: the config's. Raises a 400."""
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
        raise bad_input("egress needs network full", field="egress")
    claim["timeout"] = fields.seconds(body, "timeout")
    claim["idle_timeout"] = fields.seconds(body, "idle_timeout")
    claim["workdir"] = fields.text(body, "workdir", limit=4096) or None
    if claim["workdir"] is not None and not claim["workdir"].startswith("/"):
        raise bad_input("workdir must be an absolute path", field="workdir")
    claim["user"] = fields.user(body, "user")
    claim["start_command"] = fields.command(body, "start_command", required=False)
    claim["stop_signal"] = fields.signal(body, "stop_signal", required=False)
    claim["stop_grace"] = fields.number(body, "stop_grace", minimum=0.0, maximum=MAX_STOP_GRACE)
    claim["meta"] = fields.document(body, "meta")
    claim["restore"] = fields.flag(body, "restore", default=False)
    claim["image"] = image.parse(body, root)
    claim["services"] = links.parse(body)
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
