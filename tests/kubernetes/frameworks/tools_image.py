"""The image with the programs that suites run in sandboxes: `python -m tests.kubernetes.frameworks.tools_image` builds it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from images.build import CACHE, build
from images.contents import by_name
from images.rootfs import ImageError
from tests.cluster import cluster
from tests.cluster.debian import ensure_packages
from tests.cluster.shell import ClusterError

_PYTHON = by_name("python")
IMAGE = replace(
    _PYTHON,
    name="tools",
    title="A sandbox with Python, a shell and programs that suites of frameworks run",
    # One of Inspect's checks makes a user; E2B's SDKs run git, and ask by ss and curl whether a template is ready.
    debian=(*_PYTHON.debian, "adduser", "curl", "git", "iproute2"),
)
# Not among the archives of the images: tests run a sandbox of each that is there.
_ARCHIVES = CACHE / "frameworks"


def on_every_node() -> str:
    """Load the image on all nodes; return its name. Raises ClusterError."""
    archive = _ARCHIVES / f"{IMAGE.name}.tar"
    if not archive.exists():
        raise ClusterError(f"{archive} is missing: run `python -m tests.kubernetes.frameworks.tools_image`")
    return cluster.load_image(archive)


def archived() -> Path:
    """Build the archive, outside of the cluster's network, from which Debian's packages cannot be had.

    Raises ImageError, ClusterError.
    """
    ensure_packages({"mmdebstrap": "mmdebstrap"})
    return build(IMAGE, out=_ARCHIVES)


if __name__ == "__main__":
    try:
        print(archived())
    except (ImageError, ClusterError) as error:
        sys.exit(f"tools_image: {error}")
