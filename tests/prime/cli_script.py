"""Runs the published `prime` command for each line of arguments, in a process forked after its import: that takes 1 s of CPU.

Reads JSON lists of arguments, and answers each with its exit code and output. Runs in the client's environment, with
nothing of the tests.
"""

import json
import os
import sys
import tempfile

from prime_cli.main import run


def in_child(arguments: list[str], output: int, errors: int) -> None:
    os.dup2(output, 1)
    os.dup2(errors, 2)
    sys.argv = ["prime", *arguments]
    code = 1
    try:
        sys.exit(run())
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


for line in iter(sys.stdin.readline, ""):
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            with open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
            in_child(json.loads(line), output.fileno(), errors.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told = []
        for file in (output, errors):
            file.seek(0)
            told.append(file.read().decode())
    print(json.dumps([code, *told]), flush=True)
