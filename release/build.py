"""Builds all artifacts of a release into one directory: packages, images, chart, bill of materials, notes, digests."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from images.build import CACHE
from images.build import build as build_image
from images.contents import EPOCH, IMAGES
from images.oci import rename
from images.requirements import ROOT
from release import chart, notes, sbom, source, sums, version, wheels

CHART = "charts/sandlot"
# The chart's name of an image, where it is another one.
KEYS = {"node-agent": "nodeAgent"}


@contextmanager
def _timed(what: str) -> Generator[None]:
    began = time.monotonic()
    yield
    print(f"release: {what}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def build(wanted: str, *, out: Path | None, registry: str | None, dirty: bool) -> Path:
    """Build the release of the tree and return its directory. Raises ReleaseError or ImageError."""
    out = out or ROOT / "dist" / wanted
    sums.check_replaceable(out)
    text = notes.cut(ROOT / "CHANGELOG.md", wanted)
    version.check_tree(ROOT, wanted)
    if not dirty:
        source.check_clean(ROOT)
    chart.helm()
    epoch = source.epoch(ROOT)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as name:
        work = Path(name)
        made = work / "made"
        made.mkdir()
        (made / "NOTES.md").write_text(text)
        _artifacts(made, work / "source", wanted=wanted, registry=registry, epoch=epoch)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    return out


def _artifacts(out: Path, copied: Path, *, wanted: str, registry: str | None, epoch: int) -> None:
    names = ["LICENSE", "pyproject.toml", CHART, *wheels.packages(ROOT)]
    source.copy(ROOT, copied, names=names, epoch=epoch)
    with _timed("packages"):
        packages = wheels.build(copied, out / "python", version=wanted, epoch=epoch)
    with _timed("images"):
        digests = _images(out / "images", name=lambda image: f"{registry or 'sandlot'}/{image}:{wanted}")
    with _timed("chart"):
        by_key = {KEYS.get(image, image): digest for image, digest in digests.items()}
        chart.package(
            copied / CHART, out / "chart", version=wanted, registry=registry, digests=by_key, epoch=epoch
        )
    with _timed("bill of materials"):
        built = [path for path in packages if path.suffix == ".whl"]
        sbom.write(out / sums.BILL, version=wanted, wheels=built, digests=digests, epoch=epoch)
    with _timed("digests"):
        sums.write(out)


def _images(out: Path, *, name: Callable[[str], str]) -> dict[str, str]:
    """Write the images' archives and return the digests of their manifests."""
    out.mkdir()
    digests: dict[str, str] = {}
    for image in IMAGES:
        archive = build_image(image, out=CACHE / "archives")
        digests[image.name] = rename(
            archive, out / f"{image.name}.tar", reference=name(image.name), epoch=EPOCH
        )
    return digests
