"""Keeps the images of the catalogue as OCI archives in the tests' cache: each is built once, and named by what it is made of."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.debian import ensure_packages
from tests.cluster.lock import exclusive
from tests.toolchains import recipe
from tests.toolchains.catalogue import ToolchainImage

CACHE = Path(os.environ.get("SANDLOT_TOOLCHAINS_CACHE", Path.home() / ".cache" / "sandlot-toolchains"))
_PROGRAMS = {"mmdebstrap": "mmdebstrap"}
_UNUSED = 7 * 86400  # seconds after which no checkout is taken to need an archive
_BUILD = "build-"


def archive(image: ToolchainImage) -> Path:
    """Return the image's archive, which is built if the cache lacks it. Raises ImageError, ClusterError."""
    found = CACHE / f"{image.name}-{_digest(image)}.tar"
    with exclusive(CACHE / "lock", why="another program that builds images with languages"):
        if found.exists():
            os.utime(found)  # a use, see `clean`
        else:
            print(f"toolchains: building the image {image.name}", file=sys.stderr, flush=True)
            clean(CACHE)
            ensure_packages(_PROGRAMS)
            with tempfile.TemporaryDirectory(prefix=_BUILD, dir=CACHE) as work:
                recipe.build(image, found, work=Path(work))
    return found


def _digest(image: ToolchainImage) -> str:
    made_of = repr(image).encode() + Path(recipe.__file__).read_bytes()
    return hashlib.sha256(made_of).hexdigest()[:12]


def clean(cache: Path) -> None:
    """Delete what builds left that were killed, and archives that nobody has used for long; needs the lock."""
    for left in cache.glob(f"{_BUILD}*"):
        shutil.rmtree(left)
    for part in cache.glob("*.part"):
        part.unlink()
    for old in cache.glob("*.tar"):
        if time.time() - old.stat().st_mtime > _UNUSED:
            old.unlink()
