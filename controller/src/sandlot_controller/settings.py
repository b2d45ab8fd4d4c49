"""Every setting of the controller: from SANDLOT_… in the environment, else a default."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sandlot_contract.ports import CONTROLLER_PORT


class BadSettings(Exception):
    """A setting is missing or cannot be used; the message names it as the environment does."""


class Toleration(BaseModel):
    """As in a pod; other fields are refused, because a misspelt one would tolerate everything."""

    model_config = ConfigDict(extra="forbid")

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None


class Settings(BaseSettings):
    """Times are seconds. A setting `foo` is SANDLOT_FOO; lists and maps are JSON."""

    model_config = SettingsConfigDict(
        env_prefix="SANDLOT_", extra="ignore", validate_default=True, env_ignore_empty=True
    )

    namespace: str = Field(..., description="Where Sandbox, SandboxPool and the pods are.")
    key_file: Path = Field(..., description="The master key: the very bytes of the file.")
    webhook_url: str = Field(..., description="Where sidecars report to: the gateway's /internal/sidecar.")
    sidecar_image: str = Field(..., description="The sidecar's image.")
    sidecar_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When a node asks the registry for the sidecar."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="The same for sandboxes' images; unset: as Kubernetes does by the tag."
    )
    image_pull_secrets: list[str] = Field([], description="Names of pull secrets in `namespace`.")
    registries: list[str] = Field(
        [], description="Registries that images may come from, as the gateway's; none: all public ones."
    )
    subdomain: str = Field("sandboxes", description="The headless Service of the sandboxes.")
    runtime_class: str | None = Field(None, description="gVisor's, for templates that name none.")
    priority_class: str | None = Field(None, description="PriorityClass of the sandboxes.")
    scheduler_name: str | None = Field(None, description="Unset: the cluster's default scheduler.")
    seccomp: Literal["RuntimeDefault", "Unconfined"] = Field(
        "RuntimeDefault", description="The seccomp profile of the sandbox container."
    )
    node_selector: dict[str, str] = Field({}, description="Labels of nodes that may run sandboxes.")
    tolerations: list[Toleration] = Field([], description="Taints that sandboxes tolerate.")
    gpu_resource: str = Field("nvidia.com/gpu", description="The resource that a GPU is.")
    gpu_label: str = Field("nvidia.com/gpu.product", description="The node label that a GPU's type is in.")
    cpu_share: float = Field(0.1, ge=0, le=1, description="Requested share of a sandbox's CPU limit.")
    memory_share: float = Field(0.25, ge=0, le=1, description="Requested share of its memory limit.")
    disk_share: float = Field(0.0, ge=0, le=1, description="Requested share of its disk limit.")
    guaranteed: bool = Field(False, description="Requests equal limits; the three shares mean nothing.")
    sidecar_cpu_request: float = Field(0.01, ge=0, description="Cores.")
    sidecar_cpu_limit: float = Field(1.0, gt=0, description="Cores.")
    sidecar_memory_request: int = Field(32 << 20, ge=0, description="Bytes.")
    sidecar_memory_limit: int = Field(256 << 20, ge=32 << 20, description="Bytes.")
    memory_headroom: int = Field(256 << 20, ge=0, description="Bytes above a sandbox's limit, under gVisor.")
    holder: Literal["image", "copy"] = Field(
        "image",
        description="How the first process of a sandbox's container, a program of the sidecar's image, gets into it: by "
        "a volume of that image, or copied by an init container where the nodes know no such volumes.",
    )
    reattach_grace: float = Field(
        60.0, ge=0, description="How long a command with an id runs on without its gateway or caller."
    )
    heartbeat: float = Field(
        30.0,
        ge=0,
        description="When a sidecar repeats its state to the gateway; then twice as long after each, 10 times at most, until something happens.",
    )

    starts_per_node: int = Field(4, ge=1, description="Pool pods that may be starting on one node.")
    cold_starts_per_node: int = Field(
        8, ge=1, description="Times the nodes: pods for callers that may be starting; more wait their turn."
    )
    start_timeout: float = Field(300.0, gt=0, description="A pod that is not running by then has failed.")
    retention: float = Field(3600.0, ge=0, description="How long an ended Sandbox can be read.")
    node_grace: float = Field(
        30.0, ge=0, description="How long a node may be silent after it was found to be."
    )
    record_grace: float = Field(
        120.0, ge=0, description="How long a claimed pod may be without a Sandbox; then it is ended."
    )
    end_grace: float = Field(
        10.0, ge=0, description="How long the gateway has to say why a sidecar ended by itself."
    )
    status_delay: float = Field(
        1.0,
        ge=0,
        description="How long after its pod is ready a Sandbox that nobody has claimed gets its status Running.",
    )
    status_interval: float = Field(
        5.0,
        gt=0,
        description="Counts that have changed for so long are told in a pool's status; twelve times as long where "
        "only the number of the claimed has.",
    )
    backoff: float = Field(
        1.0, gt=0, description="After a pool's first failed start; doubled by each further one."
    )
    max_backoff: float = Field(60.0, gt=0, description="And no longer than this.")

    lease_namespace: str | None = Field(None, description="Unset: the controller's own.")
    lease_name: str = Field("sandlot-controller", description="The Lease that one of the controllers holds.")
    lease_seconds: float = Field(
        15.0, ge=1, description="Without a renewal for so long, another may take it."
    )
    identity: str = Field(default_factory=socket.gethostname, description="Who we are in the Lease.")
    health_host: str = Field("0.0.0.0", description="The address of /healthz, /readyz and /metrics.")
    health_port: int = Field(CONTROLLER_PORT, ge=0, le=65535, description="Their port; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")


def load(**values: Any) -> Settings:
    """From the environment; `values` come first. Raises BadSettings."""
    try:
        return Settings(**values)
    except ValidationError as error:
        lines = [f"SANDLOT_{'.'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        raise BadSettings("; ".join(lines)) from error
