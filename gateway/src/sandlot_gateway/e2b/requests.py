"""The bodies of E2B's control API, and the create request of ours that one stands for."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from sandlot_gateway.control import egress
from sandlot_gateway.control.field_types import MINUTES_MAX
from sandlot_gateway.control.models import CreateRequest
from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.e2b_ports import E2bPorts

from .deadlines import MARGIN
from .documents import label_of
from .failures import Problem
from .template import Template

_TIMEOUT = 300  # seconds, where a create says none
_EVERYTHING = ("0.0.0.0/0", "::/0")
_ERRORS = {
    "docker_image": "templateID",
    "checkpoint_id": "templateID",
    "pool": "templateID",
    "environment_vars": "envVars",
    "labels": "metadata",
    "timeout_seconds": "timeout",
    "network_allowlist": "network.allowOut",
    "network_denylist": "network.denyOut",
    "idempotency_key": "Idempotency-Key",
}
_HOST = re.compile(r"[A-Za-z0-9.:_-]{0,253}\Z")
_FIELD = re.compile(r"^(" + "|".join(_ERRORS) + r")\b")


class Egress(msgspec.Struct, rename="camel"):
    """Where a sandbox may connect to: the fields that a create and an update share."""

    allow_out: list[str] | None = None
    deny_out: list[str] | None = None
    egress_proxy: Any = None
    dns_servers: Any = None
    rules: Any = None


class Network(Egress, rename="camel"):
    allow_public_traffic: bool | None = None
    mask_request_host: str | None = None
    https_ports: Any = None


class NetworkUpdate(Egress, rename="camel"):
    allow_internet_access: bool | None = msgspec.field(default=None, name="allow_internet_access")


class AutoResume(msgspec.Struct):
    enabled: bool = False


class NewSandbox(msgspec.Struct, rename="camel"):
    template_id: str = msgspec.field(name="templateID")
    timeout: int | None = None
    metadata: dict[str, str] | None = None
    env_vars: dict[str, str] | None = None
    allow_internet_access: bool | None = msgspec.field(default=None, name="allow_internet_access")
    network: Network | None = None
    auto_pause: bool | None = None
    auto_resume: AutoResume | None = None
    mcp: Any = None
    iam: Any = None
    volume_mounts: Any = None


class Timeout(msgspec.Struct):
    timeout: int


class Connect(msgspec.Struct):
    timeout: int | None = None


class Pause(msgspec.Struct):
    memory: bool | None = None


class Refresh(msgspec.Struct):
    duration: int | None = None


Read = TypeVar("Read")


def read(body: bytes, kind: type[Read]) -> Read:
    """Parse a body. Raises Problem, which names the field."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except NOT_JSON as error:
        raise Problem(400, f"the body is invalid: {error}") from error


def checked_timeout(seconds: int | None, *, margin: float = 0.0) -> int:
    """Return the seconds that a new sandbox lives, besides its margin. Raises Problem."""
    most = MINUTES_MAX * 60 - round(margin)
    if seconds is not None and not 0 < seconds <= most:
        raise Problem(400, f"timeout: must be from 1 to {most} seconds")
    return _TIMEOUT if seconds is None else seconds


def refuse_unsupported(asked: NewSandbox) -> None:
    """Raise Problem for a field that nothing here stands for; some of them bring a template of E2B's own."""
    for field, value, instead in (
        ("mcp", asked.mcp, "start the server as a command"),
        ("iam", asked.iam, "leave it out"),
        ("volumeMounts", asked.volume_mounts, "write files instead"),
        ("autoResume", asked.auto_resume and asked.auto_resume.enabled, "connect to the sandbox"),
    ):
        if value:
            raise Problem(400, f"{field}: not supported here: {instead}")


def create_request(asked: NewSandbox, template: Template, *, key: str | None, wait: float) -> CreateRequest:
    """Translate a create with what its template stands for. Raises Problem."""
    margin = MARGIN if asked.auto_pause else 0
    timeout = checked_timeout(asked.timeout, margin=margin) + margin
    fields: dict[str, Any] = {
        "pool": template.pool,
        "docker_image": template.image,
        "checkpoint_id": template.checkpoint,
        "timeout_seconds": timeout,
        "environment_vars": asked.env_vars or {},
        "labels": [label_of(name, value) for name, value in (asked.metadata or {}).items()],
        "idempotency_key": key,
        "wait_seconds": wait,
        "vm": True,
    }
    if template.saved is not None:
        saved = template.saved
        fields["environment_vars"] = {**saved.env, **fields["environment_vars"]}
        fields |= {"workdir": saved.workdir, "user": saved.user, "start_command": saved.start}
        fields |= {"cpu_cores": saved.cpu, "memory_gb": saved.memory_gb}
    allowed, denied = egress_lists(asked.network or Network(), internet=asked.allow_internet_access)
    if allowed == []:
        fields["network"] = "none"
    else:
        fields |= {"network_allowlist": allowed, "network_denylist": denied}
    try:
        return CreateRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix(
            "Value error, "
        )  # which begins with the field, where there is no place
        raise Problem(400, in_their_words(f"{place}: {text}" if place else text)) from error


def egress_lists(asked: Egress, *, internet: bool | None) -> tuple[list[str] | None, list[str] | None]:
    """Return what is allowed, else what is denied, one of them None; [] is nothing. Raises Problem."""
    for field, value in (
        ("egressProxy", asked.egress_proxy),
        ("dnsServers", asked.dns_servers),
        ("rules", asked.rules),
        ("httpsPorts", getattr(asked, "https_ports", None)),
    ):
        if value:
            raise Problem(400, f"network.{field}: not supported here: leave it out")
    allowed, denied = asked.allow_out or [], asked.deny_out or []
    if internet is False or any(target in _EVERYTHING for target in denied):
        return allowed, None
    if allowed and denied:
        text = (
            "network.denyOut: with allowOut it must be 0.0.0.0/0 alone, which denies all that is not allowed"
        )
        raise Problem(400, text)
    if allowed:
        text = "network.allowOut: without denyOut 0.0.0.0/0 it limits nothing: add that, or leave it out"
        raise Problem(400, text)
    return None, denied or None


def policy_of(body: bytes) -> egress.Policy:
    """Return the policy that the body of an update stands for. Raises Problem."""
    asked = read(body, NetworkUpdate)
    allowed, denied = egress_lists(asked, internet=asked.allow_internet_access)
    try:
        return egress.Policy(allowlist=allowed, denylist=None if allowed is not None else denied or [])
    except ValidationError as error:
        text = f"network.{'denyOut' if allowed is None else 'allowOut'}: {error.errors()[0]['msg']}"
        raise Problem(400, text) from error


def ports_of(asked: Network | None) -> E2bPorts:
    """Return who may reach the ports, and the name that apps there see. Raises Problem."""
    if asked is None:
        return E2bPorts()
    mask = asked.mask_request_host
    if mask is not None and not _HOST.match(mask.replace("${PORT}", "65535")):
        raise Problem(400, "network.maskRequestHost: must be a host name, with ${PORT} for the port")
    return E2bPorts(public=asked.allow_public_traffic is not False, host=mask or None)


def in_their_words(text: str) -> str:
    """Name the field of a create as its sender wrote it."""
    return _FIELD.sub(lambda found: _ERRORS[found[1]], text)
