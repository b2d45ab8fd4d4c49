"""`make loadtest-cluster PROFILE=console`: the web console in Chromium before a gateway with 10,000 live sandboxes, of which
some come and go.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loadtests.browser.console_rows import ROWS, console
from loadtests.running import Group, main

SPEC = Path(__file__).with_name("rangespec-console.yaml")
GROUPS = (Group(ROWS, console),)

if __name__ == "__main__":
    sys.exit(main(GROUPS, spec=SPEC, name="console", description=__doc__ or ""))
