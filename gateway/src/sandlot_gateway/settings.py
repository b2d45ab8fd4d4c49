"""Every setting of the gateway: from the command line, else from SANDLOT_… in the environment, else a default."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sandlot_contract.ports import GATEWAY_PORT, WEBHOOK_PORT
from sandlot_contract.template import Template

from sandlot_gateway import local_images
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.data.dial import split_host_port
from sandlot_gateway.registries import REGISTRY


class Settings(BaseSettings):
    """Times are seconds. A setting `foo` is `--foo` on the command line and SANDLOT_FOO in the environment."""

    model_config = SettingsConfigDict(env_prefix="SANDLOT_", extra="ignore", validate_default=True)

    backend: Literal["local", "kubernetes"] = Field("local", description="What runs the sandboxes.")
    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(GATEWAY_PORT, ge=0, le=65535, description="The TCP port; 0 takes a free one.")
    webhook_port: int = Field(
        WEBHOOK_PORT,
        ge=0,
        le=65535,
        description="Kubernetes: the TCP port where sidecars report; 0 takes a free one.",
    )
    tls_cert: Path | None = Field(
        None, description="A PEM certificate chain: HTTPS, with HTTP/2, on --tls-port too."
    )
    tls_key: Path | None = Field(None, description="Its private key, PEM.")
    tls_host: str | None = Field(None, description="The address to listen on with TLS, if not --host.")
    tls_port: int = Field(8643, ge=1, le=65535, description="The TCP port with TLS.")
    ssh_port: int = Field(
        0, ge=0, le=65535, description="The TCP port of SSH sessions; 0: local any, Kubernetes none."
    )
    ssh_public_host: str | None = Field(
        None, description="The host of SSH sessions told to clients, if not that of their request."
    )
    ssh_public_port: int | None = Field(
        None, ge=1, le=65535, description="The port of SSH sessions told to clients, if not --ssh-port."
    )
    public_url: str | None = Field(
        None, description="The base URL told to clients, if not that of their request."
    )
    state_dir: Path = Field(
        default_factory=lambda: default_state_dir(),
        description="Sockets, the master key, running instances and finished sandboxes.",
    )
    api_key: str | None = Field(None, description="One more API key, of tenant `default`.")
    api_keys: str | None = Field(
        None, description="`key[:tenant[:max_sandboxes[:role]]]`, commas between; role: `use` or `operate`."
    )
    api_keys_file: Path | None = Field(None, description="The same, one entry a line; followed.")
    pool: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Warm pools, `NAME=N` (image host) or `NAME=IMAGE:N`; commas between.",
    )
    registries: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Registries that images may come from, `HOST[:PORT]` or `*.HOST`; commas between. None: all public ones.",
    )
    local_images: Annotated[list[str], NoDecode] = Field(
        default_factory=lambda: [local_images.HOST],
        description="Local: what keys of the role `use` may name beside registries' images, `host` or paths; commas between.",
    )
    metrics_public: bool = Field(
        False, description="Serve /metrics without an API key, also the names of all tenants' pools."
    )
    exit_when_idle: float | None = Field(
        None, gt=0, description="End after this long without sandbox or request."
    )
    end_sandboxes_on_exit: bool = Field(False, description="A clean end takes all sandboxes with it.")
    leave: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="How long a clean end goes on serving, not ready, and has clients close their connections.",
    )
    drain: float = Field(15.0, ge=0, le=3600, description="How long a clean end waits for running requests.")
    wait_seconds: float = Field(10.0, ge=0, le=25, description="How long create holds its answer by default.")
    max_starts: int = Field(
        default_factory=lambda: max(4, 2 * (os.cpu_count() or 2)),
        ge=1,
        description="Cold starts at one time.",
    )
    max_waiting: int = Field(2000, ge=0, description="Creates that may wait for an instance; more get a 503.")
    max_sandboxes: int | None = Field(
        None, ge=1, description="Live sandboxes of each tenant without its own limit."
    )
    start_timeout: float = Field(
        300.0,
        gt=0,
        description="How long a started instance may take to get ready, 4 times as long with its wait for a turn.",
    )
    spare_seconds: float = Field(
        30.0, ge=0, description="How long a warm instance of no pool waits for an owner."
    )
    orphan_grace: float = Field(60.0, ge=0, description="How long a sandbox stays whose creator hung up.")
    record_keep: float = Field(3600.0, ge=0, description="How long an ended sandbox can be asked for.")
    record_limit: int = Field(10_000, ge=0, description="How many ended sandboxes are remembered.")
    max_running: int = Field(256, ge=1, description="Commands and files in flight to one sandbox.")
    max_queued: int = Field(1024, ge=0, description="Requests waiting for one sandbox; more get a 503.")
    max_total: int = Field(20_000, ge=1, description="Both, over all sandboxes.")
    max_body: int = Field(2 << 20, ge=1024, description="Bytes of a control request's body.")
    tcp_ports: str | None = Field(
        None,
        pattern=r"^\d{1,5}-\d{1,5}$",
        description="`FIRST-LAST`: the ports of TCP exposures; local: any, if not given. Kubernetes: none.",
    )
    checkpoint_dir: Path | None = Field(
        None, description="Where checkpoints are kept; local: `checkpoints` in --state-dir if not given."
    )
    checkpoint_max: int = Field(4 << 30, ge=1 << 20, description="Bytes of the files of one checkpoint.")
    checkpoint_total: int = Field(20 << 30, ge=1 << 20, description="Bytes of all checkpoints together.")
    checkpoint_tenant_bytes: int = Field(
        10 << 30, ge=1 << 20, description="Bytes of all checkpoints of one tenant."
    )
    checkpoint_tenant_count: int = Field(
        1000, ge=1, description="Checkpoints of one tenant, FAILED ones not counted."
    )
    checkpoint_failed_keep: float = Field(
        3600.0, ge=0, description="How long a FAILED checkpoint can be asked for."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")
    access_log: float = Field(0.0, ge=0, le=1, description="Share of data plane requests with a log line.")
    key_file: Path | None = Field(
        None, description="The master key, shared with the controller; kubernetes only, and needed there."
    )
    namespace: str | None = Field(
        None, description="Kubernetes: the sandboxes' namespace, if not the service account's own."
    )
    kube_context: str | None = Field(
        None, description="Kubernetes: a context of the kubeconfig; else the pod's service account."
    )
    peers: str | None = Field(
        None,
        description="Kubernetes: `NAME:PORT` of all gateways together, asked for sandboxes they have just made.",
    )
    subdomain: str = Field("sandboxes", description="Kubernetes: the sandboxes' headless Service.")
    cluster_domain: str = Field("cluster.local", description="Kubernetes: the cluster's DNS domain.")

    @field_validator("peers")
    @classmethod
    def _check_peers(cls, value: str | None) -> str | None:
        if value is not None:
            split_host_port(value)
        return value

    @field_validator("pool", "local_images", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        )

    @field_validator("registries", mode="before")
    @classmethod
    def _split_registries(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.startswith("["):
            return json.loads(value)
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("registries")
    @classmethod
    def _are_registries(cls, value: list[str]) -> list[str]:
        for entry in value:
            if not REGISTRY.match(entry):
                raise ValueError(f"{entry!r} is neither HOST, HOST:PORT nor *.HOST")
        return value

    @field_validator("local_images")
    @classmethod
    def _are_images(cls, value: list[str]) -> list[str]:
        for entry in value:
            if not local_images.is_entry(entry):
                raise ValueError(f"{entry!r} is neither `host` nor an absolute path without `..`")
        return value

    @field_validator("pool")
    @classmethod
    def _check(cls, value: list[str]) -> list[str]:
        for text in value:
            parse_pool(text)
        return value

    @model_validator(mode="after")
    def _key_is_known(self) -> Settings:
        if self.backend == "kubernetes" and self.key_file is None:
            raise ValueError(
                "--key-file is needed with --backend kubernetes: name the master key that the controller has, too"
            )
        if self.backend == "local" and self.key_file is not None:
            raise ValueError(
                "--key-file is for --backend kubernetes; the local one has its key in --state-dir"
            )
        return self

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key are given together or not at all")
        return self

    @field_validator("tcp_ports")
    @classmethod
    def _are_ports(cls, value: str | None) -> str | None:
        first, _, last = (value or "1-1").partition("-")
        if not 1 <= int(first) <= int(last) <= 65535:
            raise ValueError(f"{value} is no range of ports from 1 to 65535")
        return value

    def expose_ports(self) -> range | None:
        """For TCP exposures."""
        if self.tcp_ports is None:
            return None
        first, _, last = self.tcp_ports.partition("-")
        return range(int(first), int(last) + 1)

    def checkpoints(self) -> Path | None:
        """The directory for them; None when there is none."""
        if self.checkpoint_dir is None and self.backend == "local":
            return self.state_dir / "checkpoints"
        return self.checkpoint_dir

    def pools(self) -> list[PoolSpec]:
        return [parse_pool(text) for text in self.pool]


def parse_pool(text: str) -> PoolSpec:
    """`NAME=N` or `NAME=IMAGE:N`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    image, colon, size = rest.rpartition(":")
    if not equals or not name or not size.isdigit() or (colon and not image):
        raise ValueError(f"pool {text!r} is neither NAME=N nor NAME=IMAGE:N")
    return PoolSpec(name=name, template=Template(image=image or "host"), size=int(size))


def default_state_dir() -> Path:
    """$SANDLOT_HOME, else /run/sandlot for root, else the user's runtime or state directory."""
    home = os.environ.get("SANDLOT_HOME")
    if home:
        return Path(home)
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/sandlot")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "sandlot"
    return Path.home() / ".local" / "state" / "sandlot"
