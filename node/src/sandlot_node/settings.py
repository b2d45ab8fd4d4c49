"""Settings of the node agent, from SANDLOT_… variables or defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from sandlot_contract.ports import NODE_AGENT_PORT

from .mirrors.mirrors import Mirror


class BadSettings(Exception):
    """A setting is missing or invalid; the message names its environment variable."""


class Settings(BaseSettings):
    """Settings; times are in seconds, sizes in bytes. A setting `foo` is read from SANDLOT_FOO; lists are JSON."""

    model_config = SettingsConfigDict(
        env_prefix="SANDLOT_", extra="ignore", validate_default=True, env_ignore_empty=True
    )

    token_file: Path = Field(
        ..., description="File with the token that callers send; white space around it is ignored."
    )
    containerd: str = Field("/run/containerd/containerd.sock", description="containerd's socket.")
    snapshotter: str | None = Field(
        None, description="containerd's snapshotter; unset: the one that its CRI uses."
    )
    runtime_handler: str | None = Field(
        None,
        description="Runtime handler for which containerd's CRI has this snapshotter; unset: it is CRI's default.",
    )
    images: Path = Field(
        Path("/var/lib/sandlot/images"),
        description="Directory in which images appear; the same path as on the node.",
    )
    state: Path = Field(
        Path("/var/lib/sandlot/node-agent"), description="Directory for which slot uses which image."
    )
    registries: list[str] = Field(
        [], description="Allowed registries, as the gateway's; empty: all public ones."
    )
    budget: int = Field(50 << 30, ge=1 << 20, description="Bytes that prepared images may have on disk.")
    min_free: int = Field(
        5 << 30,
        ge=0,
        description="Bytes of the disk that stay free: before a pull, idle images are released until then.",
    )
    pulls: int = Field(4, ge=1, description="Pulls that run at once; more wait, and tenants take turns.")
    pull_timeout: float = Field(3600.0, gt=0, description="Longest time of one pull.")
    hold: float = Field(60.0, ge=0, description="Time that an image stays for who asked for it to use it.")
    tag_ttl: float = Field(
        300.0, ge=0, description="Time after which the registry is asked again which image a tag means."
    )
    access_ttl: float = Field(
        600.0,
        ge=0,
        description="Time that a tenant's credentials for a private image count as checked.",
    )
    use_grace: float = Field(
        60.0, ge=0, description="Time after which a use counts only if its slot's pod runs on the node."
    )
    housekeeping: float = Field(
        30.0, gt=0, description="Time between checks for pods that are gone and for the budget."
    )
    mirrors: list[Mirror] = Field(
        [], description="Registries with a cache: `host`, `upstream`, and the cache's DNS name and port."
    )
    mirror_owner: str = Field(
        "sandlot", pattern=r"^[a-z0-9./-]+$", description="Whose files of registries the agent's are."
    )
    mirror_check: float = Field(10.0, gt=0, description="Time between checks that caches answer.")
    certs: Path = Field(
        Path("/etc/containerd/certs.d"), description="containerd's directory of registries, its config_path."
    )
    host: str = Field("0.0.0.0", description="Listen address.")
    port: int = Field(NODE_AGENT_PORT, ge=0, le=65535, description="Port; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")


def load(**values: Any) -> Settings:
    """Load the settings from the environment; `values` take precedence. Raises BadSettings."""
    try:
        return Settings(**values)
    except ValidationError as error:
        lines = [f"SANDLOT_{'.'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        raise BadSettings("; ".join(lines)) from error


def token(path: Path) -> str:
    """Return the token in a file. Raises BadSettings."""
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"SANDLOT_TOKEN_FILE: cannot read {path}: {error}") from error
    if len(found) < 16:
        raise BadSettings(f"SANDLOT_TOKEN_FILE: the token in {path} is shorter than 16 characters")
    return found
