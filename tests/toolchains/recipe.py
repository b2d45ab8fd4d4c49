"""What becomes of an image of the catalogue: a base of Debian's packages, and a layer of what npm and PyPI give."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from images.contents import EPOCH, PATH
from images.oci import Entry, tree, write_archive, write_layer
from images.rootfs import bootstrap, run
from tests.toolchains.catalogue import ToolchainImage


def build(image: ToolchainImage, out: Path, *, work: Path) -> None:
    """Write the image's archive; `work` is an empty directory for its parts. Raises ImageError, ClusterError."""
    base = work / "base.tar"
    bootstrap(base, packages=image.debian, variant="minbase", suite=image.suite, hooks=image.hooks)
    layers = [base]
    if entries := [
        *_of_npm(image, work / "npm"),
        *_of_wheels(image, work / "wheels"),
        *_links(image, work),
    ]:
        layers.append(work / "more.layer")
        write_layer(layers[-1], entries=entries, epoch=EPOCH)
    defaults = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root"}
    variables = defaults | dict(variable.split("=", 1) for variable in image.environment)
    config = {"Env": [f"{name}={value}" for name, value in variables.items()], "WorkingDir": "/"}
    write_archive(
        out,
        reference=f"sandlot.test/toolchains/{image.name}:1",
        layers=layers,
        config=config,
        epoch=EPOCH,
    )


def _of_npm(image: ToolchainImage, home: Path) -> list[Entry]:
    if not image.npm:
        return []
    words = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", home)
    run([*words, *image.npm])
    for program in [*home.glob("node_modules/*/bin/*"), *home.glob("node_modules/*/dist/cli.mjs")]:
        _make_executable(program)
    return tree(home / "node_modules", prefix="usr/local/lib/node_modules", owner=(0, 0))


def _of_wheels(image: ToolchainImage, home: Path) -> list[Entry]:
    if not image.wheels:
        return []
    uv = Path(sys.executable).with_name("uv")
    run(
        [
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            sys.executable,
            "--target",
            home,
            *image.wheels,
        ]
    )
    return tree(home, prefix="usr/local/lib/wheels", owner=(0, 0))


def _links(image: ToolchainImage, work: Path) -> Iterable[Entry]:
    directory = work / "links"
    directory.mkdir()
    for number, link in enumerate(image.links):
        path, _, target = link.partition(" -> ")
        source = directory / str(number)
        source.symlink_to(target)
        yield Entry(path=path, source=source, owner=(0, 0))


def _make_executable(path: Path) -> None:
    if path.is_file():
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
