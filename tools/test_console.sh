#!/usr/bin/env bash
# Runs the tests of the web console in Debian's Chromium, in one process: they share a gateway and a browser. Installs what
# the machine lacks, as root. SCREENSHOTS=DIR writes the pictures of the documentation there. Arguments select tests.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.console
exec .venv/bin/python -m pytest -p no:randomly tests/console "$@"
