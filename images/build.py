"""Builds the OCI archives without Docker: a Debian by mmdebstrap, packages by uv, bytecode by the image's own Python."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from images import bundle, holder
from images.contents import BUNDLE, DEBIAN, EPOCH, HOLDER, LEFT_OUT, STDLIB, TARGET, Image
from images.oci import Entry, tree, write_archive, write_layer
from images.requirements import ROOT, of_image
from images.rootfs import bootstrap, run

CACHE = Path(os.environ.get("SANDLOT_CLUSTER_CACHE", Path.home() / ".cache" / "sandlot-cluster")) / "images"
# Logs and caches of the package manager, which contain the build time.
SKIPPED = re.compile(
    r"(var/log/.+|var/cache/(apt|debconf|ldconfig)/.+|var/lib/apt/lists/.+|dev/.+|run/.+|etc/(machine-id|hostname|resolv\.conf))$"
)


def build(image: Image, *, out: Path) -> Path:
    """Build an image's archive in the directory `out`, unless its fingerprint is unchanged, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # Concurrent builds would write the same layer files.
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Programs in an image run as other users than the one who builds it.
        mask = os.umask(0o022)
        try:
            return _build(image, out=out)
        finally:
            os.umask(mask)


def _build(image: Image, *, out: Path) -> Path:
    archive = out / f"{image.name}.tar"
    stamp = out / f"{image.name}.stamp"
    want = fingerprint(image)
    if archive.exists() and stamp.exists() and stamp.read_text() == want:
        return archive
    with tempfile.TemporaryDirectory(prefix=f"{image.name}-", dir=CACHE) as name:
        work = Path(name)
        layers = [base_layer(image.debian)]
        if image.packages:
            layers.append(_application(image, base=layers[0], work=work))
        write_archive(archive, reference=image.reference, layers=layers, config=config(image), epoch=EPOCH)
    stamp.write_text(want)
    return archive


def fingerprint(image: Image) -> str:
    """Return a digest of all inputs of an image."""
    digest = hashlib.sha256(repr((image, DEBIAN, EPOCH, LEFT_OUT)).encode())
    sources = sorted((ROOT / "images").glob("*.py"))
    for package in image.packages:
        sources += sorted(
            path
            for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and "tests" not in path.parts
        )
    for path in sources:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    if image.packages:
        digest.update(of_image(image).encode())
    return digest.hexdigest()


def config(image: Image) -> dict[str, object]:
    """Return the image's OCI config."""
    settings: dict[str, object] = {
        "Env": [f"{name}={value}" for name, value in image.environment.items()],
        "User": image.user,
        "Labels": {"org.opencontainers.image.title": image.title},
    }
    if image.entrypoint:
        settings["Entrypoint"] = list(image.entrypoint)
    if image.command:
        settings["Cmd"] = list(image.command)
    if image.ports:
        settings["ExposedPorts"] = {f"{port}/tcp": {} for port in image.ports}
    return settings


def base_path(packages: Sequence[str]) -> Path:
    """Return where the layer of Debian packages is once it is built."""
    inputs = repr((sorted(packages), DEBIAN, EPOCH, LEFT_OUT, SKIPPED.pattern))
    return CACHE / f"debian-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}.layer"


def base_layer(packages: Sequence[str]) -> Path:
    """Return the layer of Debian packages, which images with the same packages share."""
    layer = base_path(packages)
    if layer.exists():
        return layer
    with tempfile.TemporaryDirectory(prefix="debian-", dir=CACHE) as name:
        work = Path(name)
        archive = work / "root.tar"
        bootstrap(archive, packages=packages, variant="essential")
        root = work / "root"
        root.mkdir()
        run(["tar", "-C", root, "-xf", archive, "--numeric-owner"])
        # Debian's scripts write bytecode with timestamps; hash-based bytecode is reproducible.
        for path in (root / "usr").rglob("*.pyc"):
            path.unlink()
        _compile(root, places=["/usr/lib/python3", STDLIB], levels=(0,))
        write_layer(layer, entries=tree(root), epoch=EPOCH, skip=lambda path: SKIPPED.match(path) is not None)
    return layer


def _compile(root: Path, *, places: Sequence[str], levels: Sequence[int]) -> None:
    """Compile with the root file system's Python, with hashes instead of timestamps, so that the output is reproducible."""
    options = [word for level in levels for word in ("-o", str(level))]
    command = ["chroot", root, "/usr/bin/python3", "-m", "compileall", "-q", *options]
    run(
        [*command, "--invalidation-mode", "unchecked-hash", *places],
        env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _application(image: Image, *, base: Path, work: Path) -> Path:
    """Return the layer of Python packages."""
    root = work / "root"
    root.mkdir()
    run(["tar", "-C", root, "-xf", base, "--numeric-owner"])
    target = root / TARGET.lstrip("/")
    listed = work / "requirements.txt"
    listed.write_text(of_image(image))
    uv = [ROOT / ".venv" / "bin" / "uv", "pip", "install", "--quiet", "--target", target]
    env = {"VIRTUAL_ENV": str(ROOT / ".venv"), "SOURCE_DATE_EPOCH": str(EPOCH)}
    run(
        [*uv, "--python-version", "3.11", "--only-binary", ":all:", "--require-hashes", "-r", listed], env=env
    )
    for package in image.packages:
        # From a copy: a build must not write into the source tree.
        source = work / package
        shutil.copytree(ROOT / package, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        run([*uv, "--no-deps", "--no-build-isolation", source], env=env)
    # uv records the path and time of the build of our own packages.
    notes = [
        path
        for name in ("direct_url.json", "uv_cache.json", "RECORD")
        for path in target.glob(f"sandlot*.dist-info/{name}")
    ]
    for left_over in [target / "bin", target / ".lock", *notes]:
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink(missing_ok=True)
    # A record has the hashes of its programs, which begin with the path of this machine's Python.
    for record in target.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith("bin/")))
    for path in target.rglob("*.pyc"):
        path.unlink()
    _compile(root, places=[TARGET], levels=image.optimise)
    entries = tree(target, prefix=TARGET, owner=(0, 0))
    if image.optimised:
        _compile(root, places=[STDLIB], levels=image.optimised)
        marks = tuple(f".opt-{level}.pyc" for level in image.optimised)
        entries += [
            entry
            for entry in tree(root)
            if f"/{entry.path}".startswith(f"{STDLIB}/") and entry.path.endswith(marks)
        ]
    if image.bundle:
        place = root / BUNDLE.lstrip("/")
        bundle.write(root, place, image.bundle)
        entries.append(Entry(path=BUNDLE.lstrip("/"), source=place))
    if image.holder:
        place = root / HOLDER.lstrip("/")
        holder.write(place, platform.machine())
        entries += tree(place.parent, prefix=str(Path(HOLDER).parent), owner=(0, 0))
    layer = work / "application.layer"
    write_layer(layer, entries=entries, epoch=EPOCH)
    return layer
