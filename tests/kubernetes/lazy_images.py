"""Images for a lazy snapshotter: this machine's programs, and many files of which a first command reads one."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from images.contents import EPOCH
from images.oci import CONFIG, MANIFEST, file_digest, tree, write_layer
from tests.cluster.lock import exclusive
from tests.cluster.paths import CACHE
from tests.local.oci import ARCHITECTURE
from tests.node.lazy_snapshotter import build, convert
from tests.node.registries import LAYER
from tests.roots import install, make_root

REPOSITORY = "lazy"
_LAYERS = CACHE / "lazy-layers"
_IN_A_DIRECTORY = 100
_ENV = ["PATH=/usr/local/bin:/usr/bin:/bin"]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The files of an image, none of which compresses. `size`: bytes of each."""

    files: int
    size: int
    seed: int = 0

    def path(self, number: int) -> str:
        return f"data/{number // _IN_A_DIRECTORY:03}/{number:05}"

    def data(self, number: int) -> bytes:
        return random.Random(f"{self.seed} {number}").randbytes(self.size)

    def digest(self, number: int) -> str:
        return hashlib.sha256(self.data(number)).hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Layer:
    blob: str  # its path
    digest: str
    diff_id: str
    annotations: Mapping[str, str]

    @property
    def size(self) -> int:
        return Path(self.blob).stat().st_size


@dataclass(frozen=True, kw_only=True)
class LazyImage:
    """An image in an OCI layout. `size`: bytes of its layers as a registry has them."""

    layout: Path
    size: int


def lazy_image(directory: Path, contents: Contents, *, layers: int) -> LazyImage:
    """Write an image of one layer, or of two, of which the lower one has the programs."""
    assert layers in (1, 2)
    name = uuid.uuid4().hex
    parts = [_with_files(contents, programs=layers == 1)]
    if layers == 2:
        parts.insert(0, _programs(directory, name))
    layout = directory / f"layout-{name}"
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for layer in parts:
        (blobs / layer.digest).symlink_to(layer.blob)
    config = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Env": _ENV, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in parts]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _document(blobs, config, CONFIG),
        "layers": [
            {
                "mediaType": LAYER,
                "digest": f"sha256:{layer.digest}",
                "size": layer.size,
                "annotations": dict(layer.annotations),
            }
            for layer in parts
        ],
    }
    names = {
        "org.opencontainers.image.ref.name": name,
        "io.containerd.image.name": f"sandlot.test/{REPOSITORY}:{name}",
    }
    entry = {**_document(blobs, manifest, MANIFEST), "annotations": names}
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return LazyImage(layout=layout, size=sum(layer.size for layer in parts))


def _document(blobs: Path, value: object, media_type: str) -> dict[str, Any]:
    data = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _root(directory: Path, name: str) -> Path:
    root = make_root(directory, name)
    install(root, "sha256sum")
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)
    return root


def _programs(directory: Path, name: str) -> _Layer:
    archive = directory / f"programs-{name}"
    write_layer(archive, entries=tree(_root(directory, name), owner=(0, 0)), epoch=EPOCH)
    return _packed(archive, directory / f"programs-{name}.layer")


def _with_files(contents: Contents, *, programs: bool) -> _Layer:
    """Return the layer with the files; it is written once for these contents and the program that packs them."""
    key = hashlib.sha256(repr((contents, programs, build().name)).encode()).hexdigest()[:12]
    blob, about = _LAYERS / key, _LAYERS / f"{key}.json"
    with exclusive(_LAYERS / "lock"):
        if not about.exists():
            with tempfile.TemporaryDirectory(dir=_LAYERS) as directory:
                archive = Path(directory) / "archive"
                root = _root(Path(directory), key) if programs else Path(directory) / "empty"
                write_layer(archive, entries=tree(root, owner=(0, 0)), epoch=EPOCH)
                _add_files(archive, contents)
                layer = _packed(archive, blob)
            about.write_text(json.dumps(asdict(layer)))
        return _Layer(**json.loads(about.read_text()))


def _add_files(archive: Path, contents: Contents) -> None:
    directories = dict.fromkeys(contents.path(number).rpartition("/")[0] for number in range(contents.files))
    with tarfile.open(archive, "a") as tar:
        for path in ("data", *directories):
            info = tarfile.TarInfo(path)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for number in range(contents.files):
            info = tarfile.TarInfo(contents.path(number))
            info.size, info.mode = contents.size, 0o644
            tar.addfile(info, io.BytesIO(contents.data(number)))


def _packed(archive: Path, blob: Path) -> _Layer:
    converted = convert(archive, blob)
    return _Layer(
        blob=str(blob),
        digest=file_digest(blob),
        diff_id=converted.diff_id,
        annotations=converted.annotations,
    )
