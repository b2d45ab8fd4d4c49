"""Writes an image as an archive of an OCI layout: layers in several compressions, media types, several platforms."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backports import zstd

from tests.conformance.materials import Materials
from tests.local.oci import ARCHITECTURE, entry, layer

PROBE = "/.conformance/probe"
REPOSITORY = "sandlot.test/conformance"
_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker"
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "zstd": lambda data: zstd.compress(data, 1),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An image; each has the probe in a layer above its own."""

    name: str
    why: str
    layers: Callable[[Materials], Sequence[bytes]]
    config: dict[str, Any] = field(default_factory=dict)
    compressions: tuple[str, ...] = ("gzip",)  # of the layers in turn
    docker: bool = False  # media types of Docker's schema 2
    platforms: tuple[str, ...] = (f"linux/{ARCHITECTURE}",)

    @property
    def reference(self) -> str:
        """Its name in a registry."""
        return f"{REPOSITORY}/{self.name}:1"


class _Archive:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._there: set[str] = set()

    def add(self, name: str, data: bytes) -> None:
        if name in self._there:
            return
        self._there.add(name)
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))

    def blob(self, data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        self.add(f"blobs/sha256/{digest}", data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data), **more}


def write(path: Path, recipe: Recipe, materials: Materials) -> None:
    """Write the image's archive."""
    probe = layer(
        entry(PROBE.rpartition("/")[0].lstrip("/")), entry(PROBE.lstrip("/"), materials.probe(), mode=0o755)
    )
    layers = [*recipe.layers(materials), probe]
    with tarfile.open(path, "w") as tar:
        _write(_Archive(tar), recipe, layers)


def _write(archive: _Archive, recipe: Recipe, layers: Sequence[bytes]) -> None:
    descriptors = [
        _platform(archive, recipe, layers if name == f"linux/{ARCHITECTURE}" else [_other(name)], name)
        for name in recipe.platforms
    ]
    name = {
        "org.opencontainers.image.ref.name": "1",
        "io.containerd.image.name": recipe.reference,
    }
    if len(descriptors) > 1:
        kind = f"{_DOCKER}.distribution.manifest.list.v2+json" if recipe.docker else f"{_OCI}.index.v1+json"
        index = {"schemaVersion": 2, "mediaType": kind, "manifests": descriptors}
        descriptors = [archive.blob(json.dumps(index).encode(), kind)]
    descriptors[0]["annotations"] = name
    archive.add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    archive.add("index.json", json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode())


def _platform(archive: _Archive, recipe: Recipe, layers: Sequence[bytes], platform: str) -> dict[str, Any]:
    system, architecture, *variant = platform.split("/")
    entries = []
    for number, data in enumerate(layers):
        compression = recipe.compressions[number % len(recipe.compressions)]
        entries.append(archive.blob(_COMPRESS[compression](data), _layer_type(recipe, compression)))
    config = {
        "architecture": architecture,
        "os": system,
        "config": {"Cmd": [PROBE, "self"]} | recipe.config,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers],
        },
    }
    kind = f"{_DOCKER}.distribution.manifest.v2+json" if recipe.docker else f"{_OCI}.manifest.v1+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": archive.blob(
            json.dumps(config).encode(),
            f"{_DOCKER}.container.image.v1+json" if recipe.docker else f"{_OCI}.config.v1+json",
        ),
        "layers": entries,
    }
    described = {"os": system, "architecture": architecture}
    if variant:
        described["variant"] = variant[0]
    return archive.blob(json.dumps(manifest).encode(), kind, platform=described)


def _layer_type(recipe: Recipe, compression: str) -> str:
    if recipe.docker:
        return (
            f"{_DOCKER}.image.rootfs.diff.tar" + {"none": "", "gzip": ".gzip", "zstd": ".zstd"}[compression]
        )
    return f"{_OCI}.layer.v1.tar" + {"none": "", "gzip": "+gzip", "zstd": "+zstd"}[compression]


def _other(platform: str) -> bytes:
    """The layer of a platform that is not this machine's."""
    return layer(entry(platform.replace("/", "-"), b""))
