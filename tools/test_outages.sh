#!/usr/bin/env bash
# A part of tools/test_cluster.sh: what follows when nodes, the API server and etcd are killed, and the test cluster's
# own kills and heals.
set -euo pipefail
cd "$(dirname "$0")/.."
exec bash tools/with_cluster.sh .venv/bin/python -m pytest -p no:randomly \
    tests/kubernetes/test_outages.py tests/cluster/test_live.py "$@"
