"""Command line of the images: `python -m images build|generate [--check]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from images import dockerfiles, requirements
from images.build import CACHE, build
from images.contents import IMAGES, by_name
from images.requirements import ROOT
from images.rootfs import ImageError


def generate(*, check: bool) -> int:
    """Write the Dockerfiles and the images' pinned lists; with `check`, report those that are out of date."""
    wanted = {**dockerfiles.generated(), **requirements.generated()}
    there = {*(ROOT / "images").glob("Dockerfile.*"), *(ROOT / "images" / "requirements").glob("*.txt")}
    drifted = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    left_over = sorted(there - set(wanted))
    if check:
        for path in [*drifted, *left_over]:
            print(
                f"{path.relative_to(ROOT)}: out of date with images/contents.py; run `python -m images generate`"
            )
        return 1 if drifted or left_over else 0
    for path in left_over:
        path.unlink()
    for path in drifted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(path.relative_to(ROOT))
    return 0


def main() -> int:
    """Run the command line and return its exit code."""
    top = argparse.ArgumentParser(prog="python -m images", description="Sandlot's container images")
    commands = top.add_subparsers(dest="command", required=True)
    archives = commands.add_parser("build", help="build OCI archives without Docker and print their paths")
    names = [image.name for image in IMAGES]
    archives.add_argument("names", nargs="*", metavar="IMAGE", help=f"{', '.join(names)} (default: all)")
    archives.add_argument("--out", type=Path, default=CACHE / "archives")
    files = commands.add_parser("generate", help="write the Dockerfiles and the images' pinned lists")
    files.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    arguments = top.parse_args()
    try:
        if arguments.command == "generate":
            return generate(check=arguments.check)
        for name in arguments.names or names:
            print(build(by_name(name), out=arguments.out), flush=True)
    except (ImageError, KeyError) as error:
        print(f"images: {error.args[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
