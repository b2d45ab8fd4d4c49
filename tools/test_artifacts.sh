#!/usr/bin/env bash
# Installs a release of the tree on a cluster from a registry that has nothing else, and its packages in an empty
# environment; `make test-cluster` does not.
set -euo pipefail
cd "$(dirname "$0")/.."
exec bash tools/with_cluster.sh env SANDLOT_TEST_ARTIFACTS=1 \
    .venv/bin/python -m pytest -p no:randomly tests/kubernetes/test_artifacts.py "$@"
