"""Copies the program of Python contexts from the contract, which the gateway sends, to the SDK, which imports nothing.

`--check` writes nothing and fails if the copy differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "contract/src/sandlot_contract/python_driver.py"
COPY = "sdk/src/sandlot/_protocol/python_driver.py"
HEADER = f"# This file is a copy of {SOURCE} by tools/python_driver.py: do not change it.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = HEADER + (ROOT / SOURCE).read_text()
    copy = ROOT / COPY
    if copy.is_file() and copy.read_text() == wanted:
        return 0
    if check:
        print(f"{COPY}: differs from {SOURCE}; run `make generate`")
        return 1
    copy.write_text(wanted)
    print(COPY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
