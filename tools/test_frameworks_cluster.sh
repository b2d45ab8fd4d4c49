#!/usr/bin/env bash
# Runs the suites of harbor, Inspect AI and E2B, whole, in sandboxes under gVisor on the test cluster. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.frameworks.listed
.venv/bin/python -m tests.node
export SANDLOT_WHOLE_SUITES=1
exec bash tools/with_cluster.sh .venv/bin/python -m pytest -p no:randomly -rA --show-capture=no --durations=0 tests/kubernetes/frameworks "$@"
