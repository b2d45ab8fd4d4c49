"""Builds small OCI images for tests: layers from entries, one manifest, as a directory or a tar."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def entry(name: str, data: bytes | None = None, **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A file with contents; else what `type` says, a directory by default."""
    info = tarfile.TarInfo(name)
    info.type = attributes.pop("type", tarfile.REGTYPE if data is not None else tarfile.DIRTYPE)
    info.mode = 0o755 if info.type == tarfile.DIRTYPE else 0o644
    info.mtime = 1_700_000_000
    info.size = len(data or b"")
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data or b""


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def hardlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.LNKTYPE, linkname=target)


def layer(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@dataclass
class Layout:
    """A layout in memory."""

    files: dict[str, bytes] = field(default_factory=dict)
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return f"sha256:{digest}"

    def image(
        self,
        layers: Sequence[bytes],
        *,
        config: dict[str, Any] | None = None,
        architecture: str = ARCHITECTURE,
        tag: str | None = None,
        compress: bool = True,
        listed: bool = True,
    ) -> dict[str, Any]:
        entries = []
        for data in layers:
            packed = gzip.compress(data, 1) if compress else data
            kind = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compress else "")
            entries.append({"mediaType": kind, "digest": self.blob(packed), "size": len(packed)})
        settings = json.dumps({"architecture": architecture, "os": "linux", "config": config or {}}).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"digest": self.blob(settings), "size": len(settings)},
                "layers": entries,
            }
        ).encode()
        descriptor: dict[str, Any] = {
            "mediaType": MANIFEST,
            "digest": self.blob(manifest),
            "size": len(manifest),
            "platform": {"os": "linux", "architecture": architecture},
        }
        if tag is not None:
            descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
            del descriptor["platform"]
        if listed:
            self.manifests.append(descriptor)
        return descriptor

    def nested(self, descriptors: list[dict[str, Any]]) -> None:
        data = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors}).encode()
        self.manifests.append({"mediaType": INDEX, "digest": self.blob(data), "size": len(data)})

    def finished(self) -> dict[str, bytes]:
        index = json.dumps({"schemaVersion": 2, "manifests": self.manifests}).encode()
        return {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index} | self.files

    def archive(self, path: Path) -> Path:
        with tarfile.open(path, "w") as archive:
            for name, data in self.finished().items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return path

    def directory(self, path: Path) -> Path:
        for name, data in self.finished().items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        return path


def one_image(layers: Iterable[bytes], **arguments: Any) -> Layout:
    layout = Layout()
    layout.image(list(layers), **arguments)
    return layout
