"""The images of a data set: one base and a layer of its own for each, in an OCI layout."""

from __future__ import annotations

import fcntl
import hashlib
import json
import random
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from images.contents import EPOCH
from images.oci import CONFIG, LAYER, MANIFEST, tree, write_layer
from tests.cluster.paths import CACHE
from tests.local.oci import ARCHITECTURE
from tests.roots import install

FOLDER = CACHE / "dataset"
REPOSITORY = "swe-dataset"
PROGRAMS = ("sh", "cat", "ls", "grep", "sed", "seq", "wc", "mkdir", "sleep")
# The layer that only one image has: incompressible, as the wheels and objects of a repository are.
FILES = 16
FILE_BYTES = 64 << 10
_CONFIG = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/task"}


def tag(number: int) -> str:
    """Return the tag of an image; its file /task/name has the same text and a line end."""
    return f"task-{number:04}"


@contextmanager
def new_layout(count: int) -> Iterator[Path]:
    """Give an OCI layout like `layout`'s of which no node has a layer or a name, since it was not built before; delete it at the end."""
    with tempfile.TemporaryDirectory(prefix="sandlot-dataset-") as name:
        work = Path(name)
        mark = f"-{secrets.token_hex(8)}"
        _write(work / "layout", _base(work, mark), count, mark=mark)
        yield work / "layout"


def layout(count: int) -> Path:
    """Return the OCI layout of `count` images, with the tags `tag(0)` to `tag(count - 1)`; build it if it is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix=".new-", dir=FOLDER) as name:
        fcntl.flock(lock, fcntl.LOCK_EX)
        work = Path(name)
        base = _base(work)
        wanted = repr((base.name, count, FILES, FILE_BYTES, _CONFIG))
        path = FOLDER / f"{count}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
        if not path.exists():
            _write(work / "layout", base, count)
            (work / "layout").rename(path)
        return path


def _base(work: Path, mark: str = "") -> Path:
    """Return the layer with this machine's programs, named by its digest."""
    root = work / "root"
    for directory in ("bin", "etc", "lib64", "root", "task", "tmp", "usr/bin", "var"):
        (root / directory).mkdir(parents=True)
    install(root, *PROGRAMS)
    if not (root / "bin/sh").exists():
        shutil.copy("/bin/sh", root / "bin/sh")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    if mark:
        (root / "etc/mark").write_text(mark)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)
    (root / "tmp").chmod(0o1777)
    layer = work / "base"
    write_layer(layer, entries=tree(root, owner=(0, 0)), epoch=EPOCH)
    return layer.rename(work / hashlib.sha256(layer.read_bytes()).hexdigest())


def _write(path: Path, base: Path, count: int, *, mark: str = "") -> None:
    blobs = path / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    shutil.copy(base, blobs / base.name)
    manifests: list[dict[str, Any]] = []
    for number in range(count):
        own = _own_layer(path.with_name("own"), number, mark)
        own = own.rename(blobs / hashlib.sha256(own.read_bytes()).hexdigest())
        manifests.append(_image(blobs, layers=[blobs / base.name, own], number=number, mark=mark))
    (path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))


def _own_layer(work: Path, number: int, mark: str) -> Path:
    root = work / "task"
    root.mkdir(parents=True)
    (root / "name").write_text(f"{tag(number)}\n")
    chance = random.Random(f"{mark}{number}")
    for index in range(FILES):
        (root / f"part-{index}").write_bytes(chance.randbytes(FILE_BYTES))
    layer = work.with_name("own-layer")
    write_layer(layer, entries=tree(work, owner=(0, 0)), epoch=EPOCH)
    shutil.rmtree(work)
    return layer


def _image(blobs: Path, *, layers: list[Path], number: int, mark: str) -> dict[str, Any]:
    """Write an image's documents; return its entry of the index."""
    config = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": _CONFIG,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.name}" for layer in layers]},
    }
    listed = [
        {"mediaType": LAYER, "digest": f"sha256:{layer.name}", "size": layer.stat().st_size}
        for layer in layers
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _document(blobs, config, CONFIG),
        "layers": listed,
    }
    names = {
        "org.opencontainers.image.ref.name": tag(number),
        "io.containerd.image.name": f"sandlot.test/{REPOSITORY}{mark}:{tag(number)}",
    }
    return {**_document(blobs, manifest, MANIFEST), "annotations": names}


def _document(blobs: Path, value: object, media_type: str) -> dict[str, Any]:
    data = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def unpacked(cache: Path) -> dict[str, int]:
    """Return how many images a local gateway has unpacked into its cache, and their bytes on disk."""
    roots = list(cache.glob("images/sha256-*/rootfs"))
    size = sum(path.lstat().st_size for root in roots for path in root.rglob("*") if path.is_file())
    return {"images_prepared": len(roots), "image_bytes": size}
