"""up and local: run the stack on this machine in the foreground; manage the private one in the background."""

from __future__ import annotations

import json as json_module
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sandlot import _local
from sandlot.cli import output
from sandlot.errors import ConfigError

local = typer.Typer(help="The private stack on this machine.", no_args_is_help=True)
STOP_SECONDS = 120.0  # a private stack's end is bounded: its drain, then its sandboxes, then its own cleanups

StateDir = Annotated[Path | None, typer.Option(help="The stack's state directory; default: SANDLOT_HOME.")]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.add_typer(local, name="local")


def _need_gateway() -> None:
    if find_spec("sandlot_gateway") is None:
        raise ConfigError("the local stack is not installed: pip install 'sandlot[local]'")


def up(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8642,
    api_key: Annotated[
        str | None, typer.Option(help="The API key; default: SANDLOT_API_KEY, else a new one.")
    ] = None,
    pool: Annotated[list[str] | None, typer.Option(metavar="NAME=N", help="Keep N sandboxes warm.")] = None,
    secrets_dir: Annotated[
        Path | None, typer.Option(help="Files TENANT/SECRET/KEY, for secrets that creates name.")
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Run the local stack in the foreground until SIGTERM or Ctrl-C; prints one line with its URL when ready.

    Clients on this machine find it without configuration.
    """
    _need_gateway()
    directory = (state_dir or _local.state_dir()).absolute()
    found = _local.running(directory)
    if found is not None:
        raise ConfigError(
            f"a stack is running already at {found.url} (state in {directory}): use it, "
            "end it with `sandlot local stop`, or choose another --state-dir"
        )
    command = [sys.executable, "-m", "sandlot_gateway", "--backend", "local", "--end-sandboxes-on-exit"]
    command += ["--host", host, "--port", str(port), "--state-dir", str(directory)]
    key = api_key or output.connection.api_key
    if key:
        os.environ["SANDLOT_API_KEY"] = key  # an argument would be shown to every user of the machine
    for item in pool or []:
        command += ["--pool", item]
    if secrets_dir is not None:
        command += ["--secrets-dir", str(secrets_dir.absolute())]
    sys.stdout.flush()
    os.execv(sys.executable, command)


@local.command()
def status(state_dir: StateDir = None, json: output.Json = False) -> int:
    """Show whether a stack is running on this machine, and its URL."""
    directory = (state_dir or _local.state_dir()).absolute()
    found = _local.running(directory)
    document = {
        "running": found is not None,
        "url": found.url if found else None,
        "state_dir": str(directory),
    }
    text = f"running at {found.url}" if found else "not running"
    output.show(document, json=json, text=f"{text} (state in {directory})")
    return 0 if found else output.MISSING


@local.command()
def stop(state_dir: StateDir = None, json: output.Json = False) -> None:
    """Stop the stack that runs on this machine."""
    directory = (state_dir or _local.state_dir()).absolute()
    pid = _gateway_pid(directory)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while _gateway_pid(directory) == pid:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"the gateway (pid {pid}) did not exit within {STOP_SECONDS:g} s: kill it, then run `sandlot local clean`"
                )
            time.sleep(0.05)
    output.show({"stopped": pid is not None}, json=json, text="stopped" if pid else "not running")


@local.command()
def clean(
    state_dir: StateDir = None,
    force: Annotated[
        bool, typer.Option("--force", help="Stop a running stack first, with its sandboxes.")
    ] = False,
    images: Annotated[bool, typer.Option("--images", help="Also remove pulled and unpacked images.")] = False,
    json: output.Json = False,
) -> int:
    """Remove what a crash left: processes, mounts, cgroups and files of dead sandboxes."""
    _need_gateway()
    directory = (state_dir or _local.state_dir()).absolute()
    command = [sys.executable, "-m", "sandlot_gateway.backends.local.clean", "--state-dir", str(directory)]
    command += ["--force"] if force else []
    command += ["--images"] if images else []
    command += ["--json"] if json else []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (run.stdout or run.stderr).strip()
    if run.returncode == 2 and "in use" in said:
        said += "; `sandlot local stop` ends it, and so does --force"
    if run.returncode and not run.stdout:
        raise ConfigError(
            said.splitlines()[-1].removeprefix("sandlot local clean: ")
            if said
            else f"cleaning failed with exit code {run.returncode} and no message; see the gateway's log"
        )
    print(said)
    return output.FAILED if run.returncode else 0


def _gateway_pid(directory: Path) -> int | None:
    """Return the pid of this state directory's live gateway; ignore a pid that another program reused."""
    try:
        pid = int(json_module.loads((directory / "endpoint.json").read_text())["pid"])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if b"sandlot_gateway" in command and state != "Z" else None
