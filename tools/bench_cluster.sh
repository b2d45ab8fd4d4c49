#!/usr/bin/env bash
# Runs the benchmark on a cluster. SANDLOT_TEST_CONTEXT selects a cluster of your own, which stays unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m loadtests.bench_cluster "$@"
fi
.venv/bin/python -m loadtests.cluster.file_image
.venv/bin/python -m loadtests.ray_sandboxes.peer
.venv/bin/python -m tests.node
exec bash tools/with_cluster.sh .venv/bin/python -m loadtests.bench_cluster "$@"
