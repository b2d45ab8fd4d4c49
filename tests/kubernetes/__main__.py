"""`python -m tests.kubernetes COMMAND…`: the chart installed for one command, which finds it in SANDLOT_URL and _API_KEY."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.kubernetes.stack import IMAGE, Stack


def main() -> int:
    """Installs, runs the command, uninstalls; the command's exit code."""
    top = argparse.ArgumentParser(prog="python -m tests.kubernetes", description=__doc__)
    top.add_argument("--runtime", choices=("gvisor", "runc"), default="gvisor", help="of the sandboxes")
    top.add_argument("--release", default="sandlot", help="Helm's name for it")
    top.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help=f"sandboxes' image: {IMAGE}"
    )
    arguments = top.parse_args()
    if not arguments.command:
        top.error("COMMAND: what to run is missing")
    stack = Stack.of_environment(runtime=arguments.runtime, release=arguments.release)
    try:
        stack.install()
        server = {"SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key}
        code = subprocess.run(arguments.command, env={**os.environ, **server}, check=False).returncode
        if code != 0:
            print(stack.report(), file=sys.stderr)
        return code
    finally:
        stack.uninstall()


if __name__ == "__main__":
    sys.exit(main())
