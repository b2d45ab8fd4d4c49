"""The sidecar's config: JSON from `--config` or the environment, validated."""

from __future__ import annotations

import json
import os

from sandlot_contract.sidecar import ENCRYPTED

from .core.limits import OpLimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ConfigError(Exception):
    """The config cannot be read, is not JSON, or has an invalid field."""


class Config:
    """Config of one sidecar: identity, address, limits and what the executor builds."""

    __slots__ = (
        "address", "cgroup_parent", "heartbeat", "hostname", "instance_id", "limits", "listen", "ops", "root",
        "state_dir", "target", "target_pid", "template", "tls", "token", "webhook", "webhook_address",
    )  # fmt: skip

    def __init__(self, document: dict[str, Any]) -> None:
        self.instance_id = _text(document, "instance_id")
        self.token = _text(document, "token")
        self.listen = _text(document, "listen")
        self.state_dir = _text(document, "state_dir")
        self.webhook = _optional_text(document, "webhook")
        self.webhook_address = _optional_text(document, "webhook_address")
        self.heartbeat = _number(document, "heartbeat", 30.0)
        self.template = _optional_text(document, "template") or ""
        self.hostname = _optional_text(document, "hostname") or "sandbox"
        self.root = _root(_mapping(document, "root"))
        self.limits = _mapping(document, "limits")
        self.cgroup_parent = _optional_text(document, "cgroup_parent")
        self.target_pid = document.get("target_pid")
        if self.target_pid is not None and (not isinstance(self.target_pid, int) or self.target_pid < 1):
            raise ConfigError("target_pid must be a positive integer")
        self.target = document.get("target", False)
        if not isinstance(self.target, bool):
            raise ConfigError("target must be true or false")
        if self.target and self.target_pid is not None:
            raise ConfigError("target and target_pid exclude each other")
        self.ops = _op_limits(_mapping(document, "ops"))
        if not self.listen.startswith("unix:/"):
            host, separator, port = self.listen.rpartition(":")
            if not (host and separator and port.isdigit() and int(port) < 65536):
                raise ConfigError("listen must be unix:/PATH or HOST:PORT")
        self.tls = _optional_text(document, "tls")
        if self.tls is not None and self.listen.startswith("unix:"):
            raise ConfigError("tls is for HOST:PORT: a Unix socket does not leave the machine")
        address = _address(self.listen, os.environ.get("POD_IP", ""))
        self.address = address if self.tls is None else ENCRYPTED + address


def read_config(source: str | int) -> Config:
    """Read the config from a file and delete it, or from a descriptor and close it. Raises ConfigError."""
    try:
        with open(source, encoding="utf-8") as file:
            document = json.load(file)
        if isinstance(source, str):
            os.unlink(source)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read config {source}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"config {source} must be a JSON object")
    return Config(document)


def _address(listen: str, pod_ip: str) -> str:
    """Return the address that others connect to: the pod's own, or the listen address outside a pod."""
    if not pod_ip or listen.startswith("unix:"):
        return listen
    host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
    return f"{host}:{listen.rpartition(':')[2]}"


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a non-empty string")
    return value


def _optional_text(document: dict[str, Any], name: str) -> str | None:
    return None if document.get(name) is None else _text(document, name)


def _mapping(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{name} must be an object")
    return value or {}


def _root(document: dict[str, Any]) -> dict[str, Any]:
    """Check what claims are compared with; the executor checks the rest."""
    _optional_text(document, "id")
    images = _optional_text(document, "images")
    if images is not None and not (images.startswith("/") and os.path.normpath(images) == images != "/"):
        raise ConfigError("root.images must be an absolute path below /")
    return document


def _number(document: dict[str, Any], name: str, default: float) -> float:
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ConfigError(f"{name} must be a number of at least 0")
    return value


def _op_limits(document: dict[str, Any]) -> OpLimits:
    unknown = set(document) - set(OpLimits.__slots__)
    if unknown:
        raise ConfigError(f"ops.{min(unknown)} is not a known field: remove it")
    numbers = {name: _number(document, name, 0) for name in document}
    for name in ("max_running", "max_queued", "output_limit", "memory_buffer", "result_bytes"):
        if name in numbers:
            numbers[name] = int(numbers[name])
    if numbers.get("max_running", 1) < 1:
        raise ConfigError("ops.max_running must be at least 1")
    return OpLimits(**numbers)  # type: ignore[arg-type]
