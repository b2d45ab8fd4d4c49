"""A Python that another user than this one can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

START_ANOTHER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'pass']))"


def python_for_others() -> str:
    """A Python of this version that an ordinary user may run."""
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/python{wanted}"):
        command = [*become_nobody(), path, "-c", START_ANOTHER]
        if Path(path).exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip(f"no Python {wanted} that an ordinary user may run")


def become_nobody() -> list[str]:
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
