"""One local stack with warm sandboxes for the published clients of a module, and a way to run one of them on any server."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.prime.environments import IndexUnreachable, environment, newest_python
from tests.prime.not_installed import not_installed
from tests.prime.server import Server
from tests.prime_rpc.conftest import box, new_box, server, stack

__all__ = ["box", "client_python", "new_box", "run_client", "server", "stack"]


def client_python(package: str, version: str, *, also: tuple[str, ...] = ()) -> Path:
    """The Python of an environment with this client, or with its newest release in a run of those.

    Ends the test where no package index can be reached.
    """
    if newest := newest_python(package):
        return newest
    try:
        return environment(package, version, also=also)
    except IndexUnreachable as error:
        not_installed(f"{package} {version}", error)


def run_client(
    server: Server, script: Path, *arguments: str, package: str, version: str, also: tuple[str, ...] = ()
) -> Any:
    """What a script prints as JSON when the client's own Python runs it with nothing but the two variables."""
    python = client_python(package, version, also=also)
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [str(python), "-B", str(script), *arguments],
                env=server.variables(Path(home)),
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=server.script_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"the client did not end: {error.stderr}") from None
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{server.log()[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])
