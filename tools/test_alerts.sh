#!/usr/bin/env bash
# Runs the tests of alerts on the cluster with every fault; `make test-cluster` runs none of them.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.chart
exec bash tools/with_cluster.sh env SANDLOT_TEST_ALERTS=1 \
    .venv/bin/python -m pytest -p no:randomly tests/kubernetes/test_alerts_live.py "$@"
