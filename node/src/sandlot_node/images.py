"""Defines prepared images, their configuration, and a requester's credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NewType, cast

ImageId = NewType("ImageId", str)  # the digest of an image's configuration, `sha256:…`
SlotId = NewType("SlotId", str)

_ID = re.compile(r"[a-z0-9]+:[0-9a-f]{32,128}\Z")


def is_image_id(text: str) -> bool:
    return _ID.match(text) is not None


@dataclass(frozen=True, kw_only=True)
class Auth:
    """Credentials for a registry: a name with a password, or an identity token. Their text form does not show them."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What an image says of the processes in it."""

    platform: str
    env: Mapping[str, str]
    workdir: str
    user: str
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    stop_signal: str

    def document(self) -> dict[str, Any]:
        """Return the configuration as in image.json and in answers."""
        return {
            "platform": self.platform,
            "env": dict(self.env),
            "workdir": self.workdir,
            "user": self.user,
            "entrypoint": list(self.entrypoint),
            "cmd": list(self.cmd),
            "stop_signal": self.stop_signal,
        }


def config_of(document: Mapping[str, Any]) -> ImageConfig:
    """Return the configuration in an OCI image configuration."""
    config = cast("Mapping[str, Any]", document.get("config") or {})
    env: dict[str, str] = {}
    for entry in cast("list[str]", config.get("Env") or []):
        name, _, value = entry.partition("=")
        env[name] = value
    parts = (document.get("os"), document.get("architecture"), document.get("variant"))
    return ImageConfig(
        platform="/".join(str(part) for part in parts if part),
        env=env,
        workdir=str(config.get("WorkingDir") or "/"),
        user=str(config.get("User") or ""),
        entrypoint=tuple(cast("list[str]", config.get("Entrypoint") or [])),
        cmd=tuple(cast("list[str]", config.get("Cmd") or [])),
        stop_signal=str(config.get("StopSignal") or ""),
    )


def config_from(document: Mapping[str, Any]) -> ImageConfig:
    """Return the configuration in an image.json."""
    return ImageConfig(
        platform=document["platform"],
        env=document["env"],
        workdir=document["workdir"],
        user=document["user"],
        entrypoint=tuple(document["entrypoint"]),
        cmd=tuple(document["cmd"]),
        stop_signal=document["stop_signal"],
    )


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image whose files are at `rootfs` on this node, read-only.

    `parts` are its layers and blobs with their bytes on disk; images that share a part share its bytes.
    """

    id: ImageId
    rootfs: Path
    config: ImageConfig
    digests: tuple[str, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Progress:
    """How far a preparation is, in bytes of the image's compressed layers; `total` is None before they are known."""

    phase: str
    done: int = 0
    total: int | None = None
