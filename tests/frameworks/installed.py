"""Installs the SDK of this tree into a directory, as its wheel would, for environments that keep no path of the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SDK = Path(__file__).parents[2] / "sdk"


def installed_sdk(target: Path) -> Path:
    """Install `sandlot` without its requirements; return the directory, for PYTHONPATH."""
    uv = Path(sys.executable).with_name("uv")
    words = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    done = subprocess.run(
        [str(uv), *words, "--python", sys.executable, "--target", str(target), str(SDK)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target
