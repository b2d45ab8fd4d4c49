"""Settings of the controller, from SANDLOT_… variables or defaults."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sandlot_contract.ports import CONTROLLER_PORT


class BadSettings(Exception):
    """A setting is missing or invalid; the message names its environment variable."""


class Toleration(BaseModel):
    """A pod's toleration; unknown fields are rejected, since a misspelt one would tolerate everything."""

    model_config = ConfigDict(extra="forbid")

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None


class Settings(BaseSettings):
    """Settings; times are in seconds. A setting `foo` is read from SANDLOT_FOO; lists and maps are JSON."""

    model_config = SettingsConfigDict(
        env_prefix="SANDLOT_", extra="ignore", validate_default=True, env_ignore_empty=True
    )

    namespace: str = Field(..., description="Namespace of Sandbox, SandboxPool and the pods.")
    key_file: Path = Field(..., description="File with the master key; all of its bytes count.")
    webhook_url: str = Field(
        ..., description="URL of the gateway's /internal/sidecar, for webhooks of sidecars."
    )
    webhook_address: str | None = Field(
        None,
        description="IP address of that URL's host, so that sidecars need no DNS; unset: the controller reads it "
        "from the Service that the host names.",
    )
    sidecar_tls_dir: Path | None = Field(
        None,
        description="Directory of `ca.crt`, `tls.crt` and `tls.key`, for calls of sidecars that speak TLS.",
    )
    sidecar_tls_secret: str | None = Field(
        None,
        description="Secret in `namespace` with these files for sidecars; with it, those of new pods speak TLS.",
    )
    sidecar_image: str = Field(..., description="Image of the sidecar.")
    sidecar_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="Pull policy of the sidecar's image."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="Pull policy of sandboxes' images; unset: Kubernetes decides by the tag."
    )
    images_directory: str | None = Field(
        None,
        pattern=r"^(/[A-Za-z0-9._-]+)+$",
        description="Directory on the nodes where their agents prepare images; sidecars lay them under claims. Unset: "
        "pods keep the image that they started with.",
    )
    image_pull_secrets: list[str] = Field([], description="Names of pull secrets in `namespace`.")
    registries: list[str] = Field(
        [], description="Allowed registries, as the gateway's; empty: all public ones."
    )
    subdomain: str | None = Field(
        None, description="Headless Service of the sandboxes; unset: their pods have no names in DNS."
    )
    runtime_class: str | None = Field(
        None, description="RuntimeClass of gVisor, for templates that name none."
    )
    priority_class: str | None = Field(None, description="PriorityClass of the sandboxes.")
    scheduler_name: str | None = Field(None, description="Unset: the cluster's default scheduler.")
    seccomp: Literal["RuntimeDefault", "Unconfined"] = Field(
        "RuntimeDefault", description="The seccomp profile of the sandbox container."
    )
    node_selector: dict[str, str] = Field({}, description="Labels of nodes that may run sandboxes.")
    tolerations: list[Toleration] = Field([], description="Taints that sandboxes tolerate.")
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource name of a GPU.")
    gpu_label: str = Field("nvidia.com/gpu.product", description="Node label with the type of GPU.")
    cpu_share: float = Field(0.1, ge=0, le=1, description="Requested share of a sandbox's CPU limit.")
    memory_share: float = Field(0.25, ge=0, le=1, description="Requested share of its memory limit.")
    disk_share: float = Field(0.0, ge=0, le=1, description="Requested share of its disk limit.")
    guaranteed: bool = Field(False, description="Requests equal limits; the three shares are ignored.")
    sidecar_cpu_request: float = Field(0.01, ge=0, description="CPU request of the sidecar, in cores.")
    sidecar_cpu_limit: float = Field(1.0, gt=0, description="CPU limit of the sidecar, in cores.")
    sidecar_memory_request: int = Field(
        32 << 20, ge=0, description="Memory request of the sidecar, in bytes."
    )
    sidecar_memory_limit: int = Field(
        256 << 20, ge=32 << 20, description="Memory limit of the sidecar, in bytes."
    )
    memory_headroom: int = Field(
        256 << 20, ge=0, description="Bytes added to a sandbox's memory limit under gVisor."
    )
    holder: Literal["image", "copy"] = Field(
        "image",
        description="How the sandbox container gets its first process, a program of the sidecar's image: by "
        "an image volume, or copied by an init container where nodes lack image volumes.",
    )
    reattach_grace: float = Field(
        60.0, ge=0, description="Time a command with an id runs on after its caller disconnects."
    )
    heartbeat: float = Field(
        30.0,
        ge=0,
        description="First heartbeat interval of a sidecar; it doubles up to 10 times as long until something happens.",
    )

    placement: Literal["pack", "spread"] = Field(
        "pack",
        description="Which node with room a new pod gets: the fullest, so that others can be removed, or the emptiest.",
    )
    starts_per_node: int = Field(
        4, ge=1, description="Starts on a node below which a pool's pod may start there."
    )
    cold_starts_per_node: int = Field(
        8, ge=1, description="Starts on a node below which a cold start may start there; others are queued."
    )
    start_timeout: float = Field(300.0, gt=0, description="Timeout for a pod to become ready.")
    retention: float = Field(3600.0, ge=0, description="Time an ended Sandbox is kept.")
    node_grace: float = Field(
        30.0, ge=0, description="Time between a node's Ready turning Unknown and its pods counting as lost."
    )
    record_grace: float = Field(
        120.0, ge=0, description="Time a claimed pod may lack a Sandbox before it is ended."
    )
    reset_grace: float = Field(
        30.0, ge=0, description="Time for a reused pod to be reset or ended after its sandbox's end."
    )
    surplus_grace: float = Field(
        60.0, ge=0, description="Time a pool that reuses its pods keeps those beyond its size."
    )
    end_grace: float = Field(10.0, ge=0, description="Time for the gateway to record why a sidecar exited.")
    status_delay: float = Field(
        1.0,
        ge=0,
        description="Time from a ready pod to the status Running of an unclaimed Sandbox.",
    )
    status_interval: float = Field(
        5.0,
        gt=0,
        description="Delay of changed counts in a pool's status; twelve times as long if "
        "only the claimed count has changed.",
    )
    node_agent_token_file: Path | None = Field(
        None, description="File with the token of the node agents; unset: the cluster has none."
    )
    registry_credentials: Path | None = Field(
        None,
        description="Directory with a file TENANT.json for each tenant, of the form of Docker's config.json, for the "
        "images of its warm-ups.",
    )
    warmup_pulls_per_node: int = Field(
        2, ge=1, description="Images that a node prepares at once for image warm-ups."
    )
    backoff: float = Field(
        1.0, gt=0, description="Backoff after a pool's first failed start; doubles with each further one."
    )
    max_backoff: float = Field(60.0, gt=0, description="Longest backoff.")

    lease_namespace: str | None = Field(
        None, description="Namespace of the Lease; unset: the controller's own."
    )
    lease_name: str = Field("sandlot-controller", description="Name of the Lease for leader election.")
    lease_seconds: float = Field(15.0, ge=1, description="Duration of the Lease without a renewal.")
    list_timeout: float = Field(
        120.0,
        gt=0,
        description="Time for a new leader's first lists; if one fails so long, it gives up the Lease.",
    )
    identity: str = Field(default_factory=platform.node, description="Holder identity in the Lease.")
    health_host: str = Field("0.0.0.0", description="Listen address of /healthz, /readyz and /metrics.")
    health_port: int = Field(
        CONTROLLER_PORT, ge=0, le=65535, description="Port of these; 0 takes a free one."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")


def load(**values: Any) -> Settings:
    """Load the settings from the environment; `values` take precedence. Raises BadSettings."""
    try:
        return Settings(**values)
    except ValidationError as error:
        lines = [f"SANDLOT_{'.'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        raise BadSettings("; ".join(lines)) from error
