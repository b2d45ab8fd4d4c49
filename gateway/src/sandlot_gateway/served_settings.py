"""Defines the gateway's settings of what it serves: at which addresses, to whom, from which images, by which APIs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sandlot_contract.ports import GATEWAY_PORT, WEBHOOK_PORT

from sandlot_gateway import local_images, runtime_classes
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.fusion_option import parse_places
from sandlot_gateway.pool_option import parse_pool
from sandlot_gateway.registries import REGISTRY
from sandlot_gateway.state_dir import default_state_dir


class ServedSettings(BaseSettings):
    """The first part of `Settings`, which says how they are given."""

    model_config = SettingsConfigDict(env_prefix="SANDLOT_", extra="ignore", validate_default=True)

    backend: Literal["local", "kubernetes"] = Field("local", description="The backend that runs sandboxes.")
    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(GATEWAY_PORT, ge=0, le=65535, description="The TCP port; 0: any free one.")
    webhook_port: int = Field(
        WEBHOOK_PORT,
        ge=0,
        le=65535,
        description="Kubernetes: the TCP port for sidecars' webhooks; 0: any free one.",
    )
    tls_cert: Path | None = Field(
        None, description="A PEM certificate chain; serves HTTPS with HTTP/2 on --tls-port as well."
    )
    tls_key: Path | None = Field(None, description="The certificate's private key, PEM.")
    tls_host: str | None = Field(None, description="The address to listen on with TLS; default --host.")
    tls_port: int = Field(8643, ge=1, le=65535, description="The TCP port with TLS.")
    sidecar_tls_dir: Path | None = Field(
        None,
        description="Kubernetes: directory of `ca.crt`, `tls.crt` and `tls.key` for sidecars that speak TLS.",
    )
    ssh_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="The TCP port of SSH sessions; 0: any free one (local) or none (Kubernetes).",
    )
    ssh_public_host: str | None = Field(
        None, description="The host of SSH sessions in responses; default that of the request."
    )
    ssh_public_port: int | None = Field(
        None, ge=1, le=65535, description="The port of SSH sessions in responses; default --ssh-port."
    )
    public_url: str | None = Field(None, description="Base URL in responses; default that of the request.")
    state_dir: Path = Field(
        default_factory=default_state_dir,
        description="Directory of sockets, the master key, instances and sandbox records.",
    )
    api_key: str | None = Field(None, description="An additional API key, of tenant `default`.")
    api_keys: str | None = Field(
        None, description="`key[:tenant[:max_sandboxes[:role]]]`, comma-separated; role: `use` or `operate`."
    )
    api_keys_file: Path | None = Field(
        None, description="A file of such entries, one a line; reloaded when it changes."
    )
    quotas_file: Path | None = Field(None, description="JSON file of tenants' quotas; reloaded on change.")
    prices_file: Path | None = Field(None, description="JSON file of prices of usage; reloaded on change.")
    pool: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Warm pools, `NAME=N` (image host) or `NAME=IMAGE:N`, comma-separated.",
    )
    registries: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Allowed registries, `HOST[:PORT]` or `*.HOST`, comma-separated; empty: all public ones.",
    )
    runtime_classes: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Kubernetes: RuntimeClasses that requests may give a pool, comma-separated; default none, which "
        "leaves the controller's.",
    )
    local_images: Annotated[list[str], NoDecode] = Field(
        default_factory=lambda: [local_images.HOST],
        description="Local: images besides registries' for keys of the role `use`, `host` or paths, comma-separated.",
    )
    gpu_root: Path = Field(
        Path("/"), description="Local: the root of the machine whose GPUs and driver sandboxes get."
    )
    metrics_public: bool = Field(
        False, description="Serve /metrics, with the names of all tenants' pools, without an API key."
    )
    console: bool = Field(True, description="Serve the web console at /console/.")
    fusion: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Serve SandboxFusion's API; where code runs: `[LANGUAGE=]IMAGE` or `[LANGUAGE=]@POOL`, comma-separated.",
    )
    fusion_sandboxes: int = Field(
        16, ge=1, description="Maximum number of sandboxes of a tenant for code of --fusion in one image."
    )
    fusion_idle: float = Field(
        60.0, ge=1, le=3600, description="How long such a sandbox is kept without a request."
    )
    fusion_network: Literal["none", "full"] = Field("none", description="The network of such sandboxes.")
    mcp: bool = Field(False, description="Serve the tools of MCP at /mcp.")
    mcp_image: str | None = Field(
        None, description="The image of sandboxes that the tools of MCP create without one; default `host`."
    )
    mcp_origins: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="The gateway's own web origins, `https://HOST[:PORT]`, comma-separated: pages of them may use "
        "/mcp. Default none. Pages of other origins get no CORS headers.",
    )
    e2b: bool = Field(False, description="Serve the wire of E2B's SDKs below /e2b.")
    e2b_domain: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        description="With --e2b, also at `api.DOMAIN` and `PORT-SANDBOX.DOMAIN`, as E2B_DOMAIN has clients do.",
    )
    e2b_public_ports: bool = Field(
        False,
        description="Serve ports of sandboxes at `PORT-SANDBOX.DOMAIN` to anyone, unless the create denies it.",
    )
    e2b_templates: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Names of E2B's templates here, `NAME=POOL` or `NAME=IMAGE`, comma-separated.",
    )

    @field_validator("pool", "runtime_classes", "local_images", "fusion", "e2b_templates", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        )

    @field_validator("registries", "mcp_origins", mode="before")
    @classmethod
    def _split_json(cls, value: object) -> object:
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
                raise ValueError(f"{entry!r} must be HOST, HOST:PORT or *.HOST")
        return value

    @field_validator("runtime_classes")
    @classmethod
    def _are_runtime_classes(cls, value: list[str]) -> list[str]:
        for entry in value:
            if not runtime_classes.is_name(entry):
                raise ValueError(f"{entry!r} must be the name of a RuntimeClass, such as `gvisor`")
        return value

    @field_validator("mcp_origins")
    @classmethod
    def _are_origins(cls, value: list[str]) -> list[str]:
        for entry in value:
            if not re.fullmatch(r"https?://[^/\s]+", entry):
                raise ValueError(f"{entry!r} must be a web origin, such as https://HOST[:PORT]")
        return value

    @field_validator("local_images")
    @classmethod
    def _are_images(cls, value: list[str]) -> list[str]:
        for entry in value:
            if not local_images.is_entry(entry):
                raise ValueError(f"{entry!r} must be `host` or an absolute path without `..`")
        return value

    @field_validator("e2b_templates")
    @classmethod
    def _are_templates(cls, value: list[str]) -> list[str]:
        for entry in value:
            name, _, target = entry.partition("=")
            if not name or not target:
                raise ValueError(f"{entry!r} must be NAME=POOL or NAME=IMAGE")
        return value

    @field_validator("pool")
    @classmethod
    def _check(cls, value: list[str]) -> list[str]:
        for text in value:
            parse_pool(text)
        return value

    @field_validator("fusion")
    @classmethod
    def _are_places(cls, value: list[str]) -> list[str]:
        parse_places(value)
        return value

    def pools(self) -> list[PoolSpec]:
        return [parse_pool(text) for text in self.pool]
