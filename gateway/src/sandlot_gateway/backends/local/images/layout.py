"""Reads an OCI image from a layout directory or a tar of one: manifest, config and layers, digests checked."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from ....core.claim_images import joined_command
from .errors import ImageError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_JSON_LIMIT = 8 << 20  # bytes; a manifest is a few KiB
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_MANIFESTS = frozenset(
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"]
)
_INDEXES = frozenset(
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"]
)


@dataclass(frozen=True, slots=True)
class Layer:
    digest: str
    media_type: str
    size: int = 0  # bytes, as the manifest says


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image for this machine's architecture."""

    digest: str
    layers: tuple[Layer, ...]
    env: dict[str, str]
    workdir: str
    user: str
    command: tuple[str, ...]
    stop_signal: str


class Source(Protocol):
    """The files of a layout, by name."""

    name: str

    def open(self, member: str) -> IO[bytes]:
        """Open a file. Raises FileNotFoundError."""
        ...


class DirectorySource:
    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def open(self, member: str) -> IO[bytes]:
        # A layout has plain files only: a link out of it could read what the caller may not.
        return open(os.open(self._path / member, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


class ArchiveSource:
    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self.name = str(path)
        self._archive = archive
        self._members = {
            member.name.removeprefix("./"): member for member in archive.getmembers() if member.isfile()
        }

    def open(self, member: str) -> IO[bytes]:
        found = self._members.get(member)
        opened = None if found is None else self._archive.extractfile(found)
        if opened is None:
            raise FileNotFoundError(member)
        return opened


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a layout directory or an archive of one. Raises ImageError naming the path."""
    try:
        if path.is_dir():
            yield DirectorySource(path)
            return
        with tarfile.open(path) as archive:
            yield ArchiveSource(path, archive)
    except FileNotFoundError as error:
        raise ImageError(f"{path}: no such file on the gateway's machine") from error
    except (tarfile.TarError, EOFError) as error:
        raise ImageError(f"{path}: not an OCI archive: {error}") from error
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror or error}") from error


def read_manifest(source: Source, *, tag: str | None = None) -> Manifest:
    """Read the manifest of `tag` (or of the only image) for this machine's platform. Raises ImageError."""
    try:
        index = _json(source, "index.json")
    except FileNotFoundError as error:
        raise ImageError(f"{source.name}: {_not_oci(source)}") from error
    entries = _entries(source, index)
    if tag is not None:
        entries = [entry for entry in entries if tag in _names(entry)]
        if not entries:
            raise ImageError(f"{source.name}: no image with the tag {tag!r} in it")
    images = {str(entry.get("digest")) for entry in entries}
    if tag is None and len(images) > 1 and not any(entry.get("platform") for entry in entries):
        raise ImageError(f"{source.name}: {len(images)} images in it; name one with oci-archive:PATH:TAG")
    document, digest = _resolve(source, entries, depth=0)
    config = document.get("config")
    layers = document.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise ImageError(f"{source.name}: manifest {digest} has no config or layers")
    about = _blob_json(source, _digest(source, config))
    # An index need not say what a single image is for.
    if about.get("architecture") and not _fits({"platform": about}):
        raise _no_platform(source, [{"platform": about}])
    settings = about.get("config")
    if not isinstance(settings, dict):
        settings = {}
    return Manifest(
        digest=digest,
        layers=tuple(
            Layer(_digest(source, layer), str(layer.get("mediaType", "")), _size(layer))
            for layer in layers
            if isinstance(layer, dict)
        ),
        env={
            _usable(source, "Env", name): _usable(source, "Env", text)
            for name, text in _env(settings.get("Env")).items()
        },
        workdir=posixpath.join("/", _usable(source, "WorkingDir", str(settings.get("WorkingDir") or ""))),
        user=_usable(source, "User", str(settings.get("User") or "root")),
        command=joined_command(_words(settings.get("Entrypoint")), _words(settings.get("Cmd"))),
        stop_signal=str(settings.get("StopSignal") or ""),
    )


@contextmanager
def open_blob(source: Source, digest: str) -> Iterator[IO[bytes]]:
    try:
        file = source.open(f"blobs/sha256/{digest.removeprefix('sha256:')}")
    except FileNotFoundError as error:
        raise ImageError(f"{source.name}: the blob {digest} is missing") from error
    with file:
        yield file


def _resolve(source: Source, entries: list[dict[str, Any]], *, depth: int) -> tuple[dict[str, Any], str]:
    """Follow indexes to the manifest for this machine's platform."""
    fitting = [entry for entry in entries if _fits(entry)]
    if not fitting or depth > 4:
        raise _no_platform(source, entries)
    entry = fitting[0]
    digest = _digest(source, entry)
    document = _blob_json(source, digest)
    kind = document.get("mediaType") or entry.get("mediaType")
    if kind in _INDEXES or ("manifests" in document and "layers" not in document):
        return _resolve(source, _entries(source, document), depth=depth + 1)
    if kind not in _MANIFESTS:
        raise ImageError(f"{source.name}: {digest} is not an image manifest but {kind}")
    return document, digest


def _fits(entry: dict[str, Any]) -> bool:
    wanted = entry.get("platform")
    if not isinstance(wanted, dict):
        return True
    return wanted.get("os", "linux") == "linux" and wanted.get("architecture") == _architecture()


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _no_platform(source: Source, entries: list[dict[str, Any]]) -> ImageError:
    offered: set[str] = set()
    for entry in entries:
        parts = entry.get("platform")
        if isinstance(parts, dict) and parts.get("architecture") != "unknown":  # that of an attestation
            named = (parts.get("os", "linux"), parts.get("architecture"), parts.get("variant"))
            offered.add("/".join(str(part) for part in named if part))
    return ImageError(
        f"{source.name}: no image for linux/{_architecture()}, only for {', '.join(sorted(offered)) or 'none'}; "
        "build it for this machine's platform, or use a machine of its own"
    )


def _names(entry: dict[str, Any]) -> set[str]:
    annotations = entry.get("annotations")
    if not isinstance(annotations, dict):
        return set()
    name = str(annotations.get("org.opencontainers.image.ref.name", ""))
    return {name, name.rpartition(":")[2]} - {""}


def _entries(source: Source, index: dict[str, Any]) -> list[dict[str, Any]]:
    entries = index.get("manifests")
    if not isinstance(entries, list):
        raise ImageError(f"{source.name}: its index has no manifests")
    return [entry for entry in entries if isinstance(entry, dict)]


def _digest(source: Source, entry: dict[str, Any]) -> str:
    digest = entry.get("digest")
    # The digest becomes part of a path, so allow only hex digits.
    if not isinstance(digest, str) or not _DIGEST.match(digest):
        raise ImageError(f"{source.name}: {digest!r} is not a sha256 digest")
    return digest


def _size(entry: dict[str, Any]) -> int:
    size = entry.get("size")
    return size if isinstance(size, int) and size > 0 else 0


def _json(source: Source, member: str) -> dict[str, Any]:
    with source.open(member) as file:
        return _parse(source, member, file.read(_JSON_LIMIT + 1))


def _blob_json(source: Source, digest: str) -> dict[str, Any]:
    with open_blob(source, digest) as file:
        data = file.read(_JSON_LIMIT + 1)
    if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
        raise ImageError(f"{source.name}: the blob {digest} has other contents than its digest says")
    return _parse(source, digest, data)


def _parse(source: Source, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{source.name}: {name} is not JSON") from error
    if not isinstance(value, dict):
        raise ImageError(f"{source.name}: {name} is not a JSON object")
    return value


def _env(value: object) -> dict[str, str]:
    pairs = (str(item).partition("=") for item in value) if isinstance(value, list) else ()
    return {name: text for name, equals, text in pairs if equals and name}


def _words(value: object) -> list[str]:
    """Return a command's words; old builders wrote a single one as a string."""
    words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [word for word in words if isinstance(word, str)]


def _usable(source: Source, field: str, text: str) -> str:
    """Return a text of the image's configuration that the kernel takes as a path or in an environment."""
    try:
        text.encode()
    except UnicodeEncodeError:
        pass
    else:
        if "\0" not in text:
            return text
    raise ImageError(
        f"{source.name}: {field} in the image's configuration has a NUL byte or is no valid text: {text[:200]!r}; "
        "build the image without it"
    )


def _not_oci(source: Source) -> str:
    try:
        source.open("manifest.json").close()
    except FileNotFoundError:
        return "not an OCI archive or layout: it has no index.json"
    return "a docker archive; make an OCI archive of it: skopeo copy docker-archive:FILE oci-archive:FILE"
