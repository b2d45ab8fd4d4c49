"""Defines the gateway's settings, from the command line, else SANDLOT_… in the environment, else a default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sandlot_gateway.data.dial import split_host_port
from sandlot_gateway.port_range import PortRange, port_range
from sandlot_gateway.s3_place import place
from sandlot_gateway.served_settings import ServedSettings


class Settings(ServedSettings):
    """All settings; times are seconds. `foo` is `--foo` on the command line, SANDLOT_FOO in the environment.

    Its own ones are times, limits, stores, logs and those of the backends. It also checks which go together.
    """

    exit_when_idle: float | None = Field(
        None, gt=0, description="Stop after this time without a sandbox or request."
    )
    end_sandboxes_on_exit: bool = Field(False, description="End all sandboxes at shutdown.")
    leave: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="At shutdown, how long to keep serving while not ready, so that clients close their connections.",
    )
    drain: float = Field(
        15.0, ge=0, le=3600, description="At shutdown, time for running requests; it ends within 30 s more."
    )
    wait_seconds: float = Field(
        10.0, ge=0, le=25, description="How long a create waits for RUNNING by default."
    )
    max_starts: int = Field(
        default_factory=lambda: max(4, 2 * (os.cpu_count() or 2)),
        ge=1,
        description="Maximum number of concurrent cold starts.",
    )
    max_waiting: int = Field(
        2000, ge=0, description="Maximum number of creates waiting for an instance; more get a 503."
    )
    max_sandboxes: int | None = Field(
        None, ge=1, description="Maximum number of live sandboxes of a tenant without its own limit."
    )
    start_timeout: float = Field(
        300.0,
        gt=0,
        description="How long an instance may take to become ready; 4 times as long if it has to wait for its start.",
    )
    spare_seconds: float = Field(
        30.0, ge=0, description="How long a warm instance without a pool waits for an owner."
    )
    orphan_grace: float = Field(
        60.0, ge=0, description="How long a sandbox outlives its caller's connection; Kubernetes: at least 5."
    )
    usage_keep: int = Field(90, ge=1, le=3660, description="Days for which the accounting's sums are kept.")
    record_keep: float = Field(3600.0, ge=0, description="How long the record of an ended sandbox is kept.")
    record_limit: int = Field(10_000, ge=0, description="Maximum number of records of ended sandboxes.")
    events_kept: int = Field(
        20_000, ge=10, description="Maximum number of events of a tenant that streams can go back to."
    )
    events_memory: int = Field(
        64 << 20, ge=1 << 20, description="Maximum bytes of these events of all tenants."
    )
    event_streams: int = Field(
        16, ge=0, le=1000, description="Maximum number of open event streams of a tenant."
    )
    event_webhooks_file: Path | None = Field(
        None, description="JSON file of webhook targets for tenants' events; default none."
    )
    max_running: int = Field(
        256, ge=1, description="Maximum number of commands and file transfers in flight per sandbox."
    )
    max_queued: int = Field(
        1024, ge=0, description="Maximum number of requests queued per sandbox; more get a 503."
    )
    max_total: int = Field(
        20_000, ge=1, description="Maximum number of requests in flight and queued over all sandboxes."
    )
    max_body: int = Field(2 << 20, ge=1024, description="Maximum bytes of a control request's body.")
    tcp_ports: PortRange | None = Field(
        None,
        description="`FIRST-LAST`: the ports of TCP exposures; default any (local) or none (Kubernetes).",
    )
    udp_ports: PortRange | None = Field(
        None,
        description="`FIRST-LAST`: the ports of UDP exposures; default any (local) or none (Kubernetes).",
    )
    checkpoint_dir: Path | None = Field(
        None,
        description="Directory of checkpoints; default `checkpoints` in --state-dir (local) or none (Kubernetes).",
    )
    checkpoint_s3: str | None = Field(
        None,
        description="`s3://BUCKET/PREFIX`: keep checkpoints there, not in a directory; default none.",
    )
    checkpoint_s3_endpoint: str | None = Field(
        None, description="URL of the S3 server of --checkpoint-s3; default Amazon's of the region."
    )
    checkpoint_s3_region: str = Field(
        "us-east-1", pattern=r"^[a-z0-9-]{1,64}$", description="Region of the bucket of --checkpoint-s3."
    )
    checkpoint_max: int = Field(
        4 << 30, ge=1 << 20, description="Maximum bytes of the files of one checkpoint."
    )
    checkpoint_total: int = Field(20 << 30, ge=1 << 20, description="Maximum bytes of all checkpoints.")
    checkpoint_tenant_bytes: int = Field(
        10 << 30, ge=1 << 20, description="Maximum bytes of all checkpoints of one tenant."
    )
    checkpoint_tenant_count: int = Field(
        1000, ge=1, description="Maximum number of checkpoints of one tenant, FAILED ones not counted."
    )
    checkpoint_failed_keep: float = Field(3600.0, ge=0, description="How long a FAILED checkpoint is kept.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level to log."
    )
    access_log: float = Field(0.0, ge=0, le=1, description="Share of data plane requests with a log line.")
    trace_endpoint: str | None = Field(
        None, pattern=r"^https?://[^/]", description="Base URL of an OTLP/HTTP collector; default no traces."
    )
    trace_ratio: float = Field(0.0, ge=0, le=1, description="Share of traced requests without `traceparent`.")
    trace_limit: int = Field(100, ge=1, description="Maximum number of traces a second of a tenant.")
    audit_log: Path | None = Field(None, description="File of audit records; `-`: stdout; default none.")
    audit_changes_only: bool = Field(False, description="Write no audit record of a read that succeeds.")
    audit_max: int = Field(100 << 20, ge=1 << 16, description="Maximum bytes of --audit-log.")
    audit_keep: int = Field(9, ge=0, le=1000, description="Number of earlier audit files to keep.")
    key_file: Path | None = Field(
        None, description="Kubernetes, required: file of the master key, shared with the controller."
    )
    namespace: str | None = Field(
        None, description="Kubernetes: the sandboxes' namespace; default that of the service account."
    )
    kube_context: str | None = Field(
        None, description="Kubernetes: a context of the kubeconfig; default the pod's service account."
    )
    peers: str | None = Field(
        None,
        description="Kubernetes: `NAME:PORT` of all gateways, which are asked for sandboxes just created there.",
    )
    node_agent_token_file: Path | None = Field(
        None,
        description="Kubernetes: file of the node agents' token; with it, a claim lays its image in any pod.",
    )
    registry_credentials: Path | None = Field(
        None,
        description="Kubernetes: directory of `TENANT.json`, like Docker's config.json, for images laid by claims.",
    )
    secrets_dir: Path | None = Field(
        None,
        description="Local: directory of `TENANT/SECRET/KEY` files, which creates name in `secret_refs`.",
    )
    secrets_namespace: str | None = Field(
        None,
        description="Kubernetes: namespace of the Secrets that creates name in `secret_refs`; default they name none.",
    )
    subdomain: str = Field(
        "sandboxes", description="Kubernetes: the sandboxes' headless Service, if there is one."
    )
    cluster_domain: str = Field("cluster.local", description="Kubernetes: the cluster's DNS domain.")

    @field_validator("peers")
    @classmethod
    def _check_peers(cls, value: str | None) -> str | None:
        if value is not None:
            split_host_port(value)
        return value

    @model_validator(mode="after")
    def _key_is_known(self) -> Settings:
        if self.backend == "kubernetes" and self.key_file is None:
            raise ValueError(
                "--key-file is required with --backend kubernetes: pass the file of the controller's master key"
            )
        if self.backend == "local" and self.key_file is not None:
            raise ValueError(
                "--key-file is for --backend kubernetes only; the local backend has its key in --state-dir"
            )
        return self

    @model_validator(mode="after")
    def _retries_are_heard_in_time(self) -> Settings:
        # A retry's gateway asks again for a pending sandbox 1 s after the answers, which take up to 3 s.
        if self.backend == "kubernetes" and self.orphan_grace < 5.0:
            raise ValueError(
                f"--orphan-grace must be at least 5 with --backend kubernetes, not {self.orphan_grace:g}:"
                " a sandbox could be deleted while its caller waits for it at another gateway"
            )
        return self

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key must be given together")
        if self.backend == "local" and self.sidecar_tls_dir is not None:
            raise ValueError(
                "--sidecar-tls-dir is for --backend kubernetes only: local sidecars listen on Unix sockets"
            )
        return self

    @field_validator("checkpoint_s3", "checkpoint_s3_endpoint")
    @classmethod
    def _is_place(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            is_endpoint = info.field_name == "checkpoint_s3_endpoint"
            place("s3://bucket" if is_endpoint else value, endpoint=value if is_endpoint else None)
        return value

    @model_validator(mode="after")
    def _endpoint_has_its_bucket(self) -> Settings:
        if self.checkpoint_s3 is None and self.checkpoint_s3_endpoint is not None:
            raise ValueError("--checkpoint-s3-endpoint needs --checkpoint-s3, the bucket: s3://BUCKET/PREFIX")
        return self

    def expose_ports(self) -> dict[str, range]:
        """Return the ports for exposures by protocol."""
        return {"TCP": port_range(self.tcp_ports), "UDP": port_range(self.udp_ports)}

    def checkpoints(self) -> Path | None:
        """Return the directory of checkpoints, or None."""
        if self.checkpoint_dir is None and self.backend == "local":
            return self.state_dir / "checkpoints"
        return self.checkpoint_dir
