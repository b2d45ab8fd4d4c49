"""Command line of releases: `python -m release build|check|publish|version VERSION`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from images.requirements import ROOT
from images.rootfs import ImageError
from release import check, publish, version
from release.build import build
from release.errors import ReleaseError


def parser() -> argparse.ArgumentParser:
    """Return the commands with their arguments; an empty VERSION is an error of its own."""
    top = argparse.ArgumentParser(prog="python -m release", description="Sandlot's releases")
    commands = top.add_subparsers(dest="command", required=True)
    for name, text in (
        ("build", "build the artifacts of the tree's version"),
        ("check", "build them again from a clone and without caches, and compare"),
        ("publish", "push images and chart to a registry"),
        ("version", "write the version wherever the tree states it"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("version", nargs="?", default="", metavar="VERSION")
        if name != "version":
            command.add_argument("--out", type=Path, help="the artifacts' directory (default: dist/VERSION)")
            command.add_argument("--registry", help="prefix of the images' names, and of the chart's")
        if name == "build":
            command.add_argument(
                "--dirty", action="store_true", help="a trial: build uncommitted changes, too"
            )
        if name == "publish":
            command.add_argument("--plain-http", action="store_true", help="the registry has no TLS")
    return top


def run(arguments: argparse.Namespace) -> None:
    """Run one command. Raises ReleaseError or ImageError."""
    wanted = version.checked(arguments.version)
    if arguments.command == "version":
        for path in version.write(ROOT, wanted):
            print(path.relative_to(ROOT))
        return
    registry = arguments.registry or None
    if arguments.command == "build":
        print(build(wanted, out=arguments.out, registry=registry, dirty=arguments.dirty))
        return
    out = arguments.out or ROOT / "dist" / wanted
    if arguments.command == "check":
        check.check(wanted, out=out, registry=registry)
    else:
        publish.publish(wanted, out=out, registry=registry, plain_http=arguments.plain_http)


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        run(parser().parse_args())
    except (ImageError, ReleaseError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
