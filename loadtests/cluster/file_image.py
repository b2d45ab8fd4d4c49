"""The image for file work, with git and pip: `python -m loadtests.cluster.file_image` builds its archive."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from images.build import CACHE, build
from images.contents import Image
from images.rootfs import ImageError
from tests.cluster import cluster
from tests.cluster.shell import ClusterError

IMAGE = Image(
    name="file-work",
    title="A sandbox with Python, pip and git",
    debian=("python3", "python-is-python3", "python3-pip", "git", "ca-certificates"),
    command=("python3",),
)
_ARCHIVES = CACHE / "archives"


async def on_every_node() -> str:
    """Load the image on all nodes and return its name; a foreign cluster must have it. Raises ClusterError."""
    if not os.environ.get("SANDLOT_TEST_CONTEXT"):
        await asyncio.to_thread(cluster.load_image, _archive())
    return IMAGE.reference


async def pushed() -> str:
    """Push the image to the test cluster's registry, from which node agents pull; return its name. Raises ClusterError."""
    return await asyncio.to_thread(cluster.push_image, _archive())


def _archive() -> Path:
    archive = _ARCHIVES / f"{IMAGE.name}.tar"
    if not archive.exists():
        raise ClusterError(f"{archive} is missing: run `python -m loadtests.cluster.file_image`")
    return archive


def main() -> int:
    """Build the archive, outside of the cluster's network, which cannot reach Debian's packages."""
    try:
        print(build(IMAGE, out=_ARCHIVES))
    except ImageError as error:
        print(f"file_image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
