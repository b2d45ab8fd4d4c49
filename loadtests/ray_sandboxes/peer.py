"""Runs rollouts in Ray's sandboxes on this machine, in namespaces that end with all of Ray's processes and files.

`python -m loadtests.ray_sandboxes.peer` makes Ray's environment; the cluster's network has no package index.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests import own_network
from loadtests.own_network import in_own_network
from tests.cluster.paths import BIN
from tests.prime.environments import EnvironmentFailed, IndexUnreachable, pinned_environment

PINNED = Path(__file__).resolve().parents[2] / "requirements" / "ray.txt"
_CLIENT = Path(__file__).with_name("client.py")
_PATIENCE = 240.0  # seconds for the start of Ray and of its workers on busy cores
# Ray and runsc write to fixed paths below /tmp. `$0` takes their place and goes with this process namespace.
_ENTER = 'mount --bind "$0" /tmp && PATH=/tmp/bin:$PATH && export PATH && exec "$@"'

# Without limits a sandbox needs no cgroup; those of killed ones would stay.
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SANDBOX_IGNORE_CGROUPS": "1"}


class RayFailed(Exception):
    """Ray did not start, or a rollout failed; the message is Ray's."""


@dataclass(slots=True)
class Rollouts:
    """Those that ended in a window of so many seconds, and the seconds of each one's create, exec and delete."""

    seconds: float
    times: list[tuple[float, float, float]]

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds


def missing() -> str | None:
    """Return why Ray's sandboxes cannot run here, or None. Makes their environment on first use."""
    if reason := own_network.missing():
        return reason
    if not (BIN / "runsc").exists():
        return "needs runsc, which `make cluster` builds"
    return _not_installed()


def _not_installed() -> str | None:
    try:
        pinned_environment(PINNED)
    except IndexUnreachable:
        return f"no package index answers, so requirements/{PINNED.name} cannot be installed"
    except EnvironmentFailed as error:
        return f"requirements/{PINNED.name} cannot be installed: {str(error).strip()[-200:]}"
    return None


async def rollouts(archive: Path, *, callers: int, seconds: float) -> dict[str, Rollouts]:
    """Return the rollouts by the way to have a sandbox: `runtime`, an actor for each caller; `actor`, for each sandbox.

    `archive`: an OCI archive with one layer. Raises RayFailed, EnvironmentFailed.
    """
    python = await asyncio.to_thread(pinned_environment, PINNED)
    words = [str(python), "-B", "/tmp/client.py", "/tmp/root.tar", str(callers), str(seconds)]
    found = await in_own_network(lambda: _run(archive, words, patience=_PATIENCE + 2 * seconds))
    return {way: Rollouts(seconds, times) for way, times in json.loads(found).items()}


async def _run(archive: Path, words: Sequence[str], *, patience: float) -> str:
    with tempfile.TemporaryDirectory(prefix="sandlot-ray-") as name:
        home = Path(name)
        _fill(home, archive)
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("sh", "-c", _ENTER, name, *words),
            cwd="/",
            env={"PATH": os.environ["PATH"], "HOME": "/tmp", **_SETTINGS},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(patience):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise RayFailed(f"no answer within {patience:g} s") from error
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await process.wait()
    if process.returncode != 0:
        raise RayFailed(errors.decode(errors="replace").strip()[-1500:])
    return output.decode()


def _kill(unshare: int) -> None:
    """End the process namespace, so that `unshare` ends after all processes in it."""
    first = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    os.kill(int(first[0]) if first else unshare, signal.SIGKILL)


def _fill(home: Path, archive: Path) -> None:
    """Make what the client finds below /tmp: itself, the root of its sandboxes, and runsc."""
    shutil.copy(_CLIENT, home / "client.py")
    (home / "bin").mkdir()
    shutil.copy(BIN / "runsc", home / "bin")
    with tarfile.open(archive) as tar:
        manifest = _document(tar, "index.json")["manifests"][0]
        (layer,) = _document(tar, _blob(manifest))["layers"]
        data = tar.extractfile(_blob(layer))
        assert data is not None
        with data, (home / "root.tar").open("wb") as out:
            shutil.copyfileobj(data, out)


def _document(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    data = tar.extractfile(name)
    assert data is not None
    with data:
        return json.load(data)


def _blob(entry: dict[str, Any]) -> str:
    return f"blobs/{entry['digest'].replace(':', '/')}"


def main() -> None:
    if reason := _not_installed():
        print(f"loadtests.ray_sandboxes.peer: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
