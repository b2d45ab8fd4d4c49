#!/usr/bin/env bash
# The tests on a real Kubernetes, from nothing to nothing: cluster up, images, chart, tests, down.
# With SANDLOT_TEST_CONTEXT a cluster of your own is used, and left as it was but for the chart's uninstall.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec $python -m pytest tests/kubernetes "$@"
fi
trap '$python -m tests.cluster down' EXIT
$python -m tests.cluster up
$python -m tests.cluster load-image $($python -m images build)
if ! $python -m tests.cluster run -- env SANDLOT_TEST_CLUSTER=1 $python -m pytest tests/kubernetes "$@"; then
    $python -m tests.cluster logs
    exit 1
fi
