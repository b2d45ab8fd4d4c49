#!/usr/bin/env bash
# Runs the suites of harbor, Inspect AI and E2B, whole, in sandboxes under gVisor on the test cluster. Arguments are pytest's.
# PAGE=docs/framework-runs.md puts the results into that page's table; then there are no arguments, since its rows are of whole suites.
set -euo pipefail
if [ -n "${PAGE:-}" ] && [ $# -gt 0 ]; then
    echo "test_frameworks_cluster: PAGE records whole suites, and arguments ($*) run a part of them: leave out one of both" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.frameworks.listed
.venv/bin/python -m tests.kubernetes.frameworks.tools_image
export SANDLOT_WHOLE_SUITES=1
report="$(mktemp --suffix=.xml)"
trap 'rm -f "$report"' EXIT
code=0
bash tools/with_cluster.sh .venv/bin/python -m pytest -p no:randomly -rA --show-capture=no --durations=0 --junitxml="$report" tests/kubernetes/frameworks "$@" || code=$?
if [ -n "${PAGE:-}" ] && [ -s "$report" ]; then
    .venv/bin/python -m tests.frameworks.recorded "$report" "$PAGE"
fi
exit "$code"
