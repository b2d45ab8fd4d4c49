"""`python -m tests.toolchains [IMAGE...]`: builds the images with SandboxFusion's languages, or these; prints their archives."""

from __future__ import annotations

import argparse
import sys

from images.rootfs import ImageError
from tests.cluster.shell import ClusterError
from tests.toolchains.build import archive
from tests.toolchains.catalogue import IMAGES

top = argparse.ArgumentParser(prog="python -m tests.toolchains", description=__doc__)
top.add_argument(
    "images", nargs="*", metavar="IMAGE", help=f"of {', '.join(image.name for image in IMAGES)}; default: all"
)
arguments = top.parse_args()
known = {image.name: image for image in IMAGES}
if unknown := set(arguments.images) - known.keys():
    top.error(f"IMAGE: not in the catalogue: {', '.join(sorted(unknown))}")
for name in arguments.images or known:
    try:
        print(archive(known[name]), flush=True)
    except (ImageError, ClusterError) as error:
        sys.exit(f"{name}: {error}")
