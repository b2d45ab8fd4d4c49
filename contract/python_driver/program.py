"""The program of a Python context: runs cells in one namespace, for Python 3.8 or later and its standard library alone.

Clients send this program's text as `python3 -c TEXT [OUTPUT_LIMIT]`, so it imports nothing of Sandlot. The first process
speaks the protocol and never runs code of cells; a child does, whose namespace and output pipes are its own. So code
cannot write into the protocol by accident, and neither a busy nor a dead child stops interrupts, timeouts and restarts.

Its input and output are lines of JSON (docs/python-contexts.md). It ignores input that is no request, such as the
begin of one that was cut off and sent again.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path and sys.path[0] == "":
    # Else a module in the working directory runs in this process. It is for the cells, whose process gets this back.
    del sys.path[0]

from .processes import prctl
from .protocol import TOTAL
from .supervisor import Supervisor


def main() -> None:
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    Supervisor(int(sys.argv[1]) if len(sys.argv) > 1 else TOTAL).serve()


if __name__ == "__main__":
    main()
