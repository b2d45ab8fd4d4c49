"""Writes file trees as layers and layers as OCI image archives, reproducibly."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file at `source` on this machine and at `path` in the image (without a leading slash)."""

    path: str
    source: Path
    owner: tuple[int, int] | None = None


def tree(root: Path, *, prefix: str = "", owner: tuple[int, int] | None = None) -> list[Entry]:
    """Yield every file and directory under `root`, as in the image under `prefix`."""
    found = []
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            source = Path(directory) / name
            relative = source.relative_to(root).as_posix()
            found.append(Entry(path=f"{prefix}/{relative}".lstrip("/"), source=source, owner=owner))
    return found


def write_layer(
    out: Path, *, entries: Sequence[Entry], epoch: int, skip: Callable[[str], bool] | None = None
) -> None:
    """Write a layer: sorted by name, numeric owners, no mtime after `epoch`, missing parents owned by root."""
    seen: dict[tuple[int, int], str] = {}
    directories: set[str] = set()
    part = out.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        for entry in sorted(entries, key=lambda entry: entry.path):
            if skip is not None and skip(entry.path):
                continue
            for parent in reversed(Path(entry.path).parents[:-1]):
                if parent.as_posix() not in directories:
                    directories.add(parent.as_posix())
                    tar.addfile(_directory(parent.as_posix(), epoch=epoch))
            status = entry.source.lstat()
            info = tarfile.TarInfo(entry.path)
            info.mode = stat.S_IMODE(status.st_mode)
            info.uid, info.gid = entry.owner or (status.st_uid, status.st_gid)
            info.mtime = min(int(status.st_mtime), epoch)
            if stat.S_ISLNK(status.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry.source)
                tar.addfile(info)
            elif stat.S_ISDIR(status.st_mode):
                info.type = tarfile.DIRTYPE
                directories.add(entry.path)
                tar.addfile(info)
            elif stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                if status.st_nlink > 1 and identity in seen:
                    info.type, info.linkname = tarfile.LNKTYPE, seen[identity]
                    tar.addfile(info)
                    continue
                seen[identity] = entry.path
                info.size = status.st_size
                with entry.source.open("rb") as data:
                    tar.addfile(info, data)
    part.rename(out)


def _directory(path: str, *, epoch: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, epoch
    return info


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def write_archive(
    out: Path, *, reference: str, layers: Sequence[Path], config: Mapping[str, Any], epoch: int
) -> str:
    """Write an OCI image archive and return the manifest's digest."""
    blobs: dict[str, bytes | Path] = {}

    def document(value: Any) -> tuple[str, int]:
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest, len(data)

    digests = [file_digest(layer) for layer in layers]
    blobs.update(zip(digests, layers, strict=True))
    config_digest, config_size = document(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": _time(epoch),
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            "history": [{"created": _time(epoch)} for _ in digests],
        }
    )
    manifest_digest, manifest_size = document(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": f"sha256:{config_digest}", "size": config_size},
            "layers": [
                {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": layer.stat().st_size}
                for digest, layer in zip(digests, layers, strict=True)
            ],
        }
    )
    index = _index(reference, digest=f"sha256:{manifest_digest}", size=manifest_size)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, name="oci-layout", data=b'{"imageLayoutVersion":"1.0.0"}', epoch=epoch)
        _add(tar, name="index.json", data=index, epoch=epoch)
        for digest in sorted(blobs):
            _add(tar, name=f"blobs/sha256/{digest}", data=blobs[digest], epoch=epoch)
    part.rename(out)
    return f"sha256:{manifest_digest}"


def _index(reference: str, *, digest: str, size: int) -> bytes:
    annotations = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rsplit(":", 1)[1],
    }
    manifest = {"mediaType": MANIFEST, "digest": digest, "size": size, "annotations": annotations}
    return json.dumps({"schemaVersion": 2, "manifests": [manifest]}, sort_keys=True).encode()


def rename(archive: Path, out: Path, *, reference: str, epoch: int) -> str:
    """Copy an archive with another image name and return the manifest's digest, which stays the same."""
    _, digest = archive_index(archive)
    with tarfile.open(archive) as old, tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as new:
        size = old.getmember(f"blobs/{digest.replace(':', '/')}").size
        for member in old:
            if member.name == "index.json":
                _add(new, name=member.name, data=_index(reference, digest=digest, size=size), epoch=epoch)
            else:
                new.addfile(member, old.extractfile(member))
    return digest


def _add(tar: tarfile.TarFile, *, name: str, data: bytes | Path, epoch: int) -> None:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = 0o644, epoch
    if isinstance(data, bytes):
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    else:
        info.size = data.stat().st_size
        with data.open("rb") as stream:
            tar.addfile(info, stream)


def _time(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def archive_index(path: Path) -> tuple[str, str]:
    """Return an archive's image name and manifest digest. Raises ValueError."""
    with tarfile.open(path) as tar:
        member = tar.extractfile("index.json")
        if member is None:
            raise ValueError(f"{path}: its index.json is not a file")
        manifest = json.load(member)["manifests"][0]
    return manifest["annotations"]["io.containerd.image.name"], manifest["digest"]
