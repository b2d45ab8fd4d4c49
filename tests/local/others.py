"""A Python that another user than this one can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a test does: imports of ours, and another Python.
LOOK = """
import subprocess, sys
sys.path[:0] = sys.argv[1:]
import sandlot_gateway, tests.local.others
sys.exit(subprocess.call([sys.executable, "-c", "pass"]))
"""
SHOW = 'while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done; shift; exec "$@"'


def python_for_others(place: Path, *, become: list[str]) -> tuple[list[str], list[str]]:
    """A Python of this version that an ordinary user may run, as a command, and what is to be its `sys.path`.

    `become`: what the command is begun with, once it can be seen. Where this Python, or these tests, lie in a home of
    root's, they are shown in `place`, which that user may read.
    """
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    paths = [path for path in sys.path if path] + [str(ROOT)]
    for path in (sys.executable, f"/usr/bin/python{wanted}"):
        if Path(path).exists() and _works([*become_nobody(), path], paths) is None:
            return [*become, path], paths
    if os.geteuid() != 0:
        pytest.skip(f"no Python {wanted} that an ordinary user may run")
    shown: dict[str, str] = {}
    for source in sorted({sys.base_prefix, sys.prefix, str(ROOT)}, key=len, reverse=True):
        shown[source] = str(place / f"shown-{len(shown)}")
        Path(shown[source]).mkdir()

    def there(path: str) -> str:
        source = next((one for one in shown if Path(path).is_relative_to(one)), None)
        return path if source is None else path.replace(source, shown[source], 1)

    binds = [word for pair in shown.items() for word in pair]
    show = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", SHOW, "sh", *binds, "--"]
    python, paths = f"{shown[sys.base_prefix]}/bin/python{wanted}", [there(path) for path in paths]
    failure = _works([*show, *become_nobody(), python], paths)
    if failure is not None:
        pytest.skip(f"no Python {wanted} that an ordinary user may run: {failure[-200:]}")
    return [*show, *become, python], paths


def _works(command: list[str], paths: list[str]) -> str | None:
    """None, or why not."""
    done = subprocess.run(
        [*command, "-c", LOOK, *paths], capture_output=True, text=True, check=False, cwd="/"
    )
    return None if done.returncode == 0 else done.stderr.strip() or str(done.returncode)


def become_nobody() -> list[str]:
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
