#!/usr/bin/env bash
# The tests that need the programs of a Kubernetes (the chart's, those beside a real API server, gVisor's), then those on
# a real cluster, in the order of the files: one release serves them all, and the outages come last. With arguments, only
# what they choose of the latter. With SANDLOT_TEST_CONTEXT a cluster of your own is used, none of its nodes is killed,
# and it is left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.prime.environments
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m pytest -p no:randomly tests/kubernetes "$@"
fi
failed=0
if [ $# = 0 ]; then
    .venv/bin/python -m tests.cluster build
    SCOPE=programs bash tools/test.sh || failed=$?
fi
bash tools/with_cluster.sh .venv/bin/python -m pytest -p no:randomly tests/kubernetes tests/cluster/test_live.py "$@" ||
    failed=$?
exit "$failed"
