"""The `sandlot` command line. Heavy imports wait until the command is known."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its code; every error is one line on standard error."""
    _open_missing()
    if sys.argv[1:] in (["--version"], ["version"]):
        from sandlot._version import __version__

        print(f"sandlot {__version__}")
        sys.exit(0)
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader (such as head) has closed the pipe: the interpreter's flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)


def _open_missing() -> None:
    """Open closed descriptors 0, 1 and 2 on /dev/null, or sys.stdout is None and another file becomes 1."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        # Opens the lowest free descriptor, which is this one if it is closed.
        fd = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(fd, fd == number)
        setattr(sys, name, open(fd, "w" if number else "r", closefd=False))  # noqa: SIM115


def _run(arguments: list[str]) -> int:
    try:
        import rich
        import typer

        del rich, typer
    except ImportError as error:
        print(f"sandlot: the command line needs {error.name}: pip install 'sandlot[cli]'", file=sys.stderr)
        return 1
    from sandlot.cli.app import run

    return run(arguments)
