"""Builds root file systems from Debian packages, reproducibly."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from images.contents import DEBIAN, EPOCH, LEFT_OUT


class ImageError(Exception):
    """Raised if an image cannot be built; the message has the reason."""


def run(command: Sequence[str | Path], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program and return its standard output. Raises ImageError with the end of its output."""
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None and not Path(words[0]).exists():
        raise ImageError(f"{words[0]}: not found; install it")
    done = subprocess.run(
        words,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ImageError(
            f"{' '.join(words)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout


def bootstrap(
    out: Path, *, packages: Sequence[str], variant: str, suite: str = DEBIAN, hooks: Sequence[str] = ()
) -> None:
    """Write a root file system of Debian packages as a tar archive. Raises ImageError.

    `hooks`: further options of mmdebstrap, such as `--customize-hook=COMMAND`.
    """
    if os.geteuid() != 0:
        raise ImageError(
            "building an image needs root, for mmdebstrap; run as root, or use the Dockerfiles in images/"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.stem}.part.tar")
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    include = f"--include={','.join(sorted(packages))}"
    command = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        f"--variant={variant}",
        *excluded,
        *hooks,
        include,
        suite,
        part,
    ]
    run(command, env={"SOURCE_DATE_EPOCH": str(EPOCH)})
    part.rename(out)
