#!/usr/bin/env bash
# The tests on a real Kubernetes. With SANDLOT_TEST_CONTEXT a cluster of your own is used, none of its nodes is killed,
# and it is left as it was. In the order of the files: one release serves them all, and the outages come last.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.prime.environments
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m pytest -p no:randomly tests/kubernetes "$@"
fi
exec bash tools/with_cluster.sh .venv/bin/python -m pytest -p no:randomly tests/kubernetes tests/cluster/test_live.py "$@"
