#!/usr/bin/env bash
# Runs a part of tools/test_cluster.sh: kills of nodes, the API server and etcd, and the test cluster's own faults.
set -euo pipefail
cd "$(dirname "$0")/.."
exec bash tools/with_cluster.sh .venv/bin/python -m pytest -p no:randomly \
    tests/kubernetes/test_outages.py tests/cluster/test_live.py "$@"
