#!/usr/bin/env bash
# The benchmark on a real Kubernetes. With SANDLOT_TEST_CONTEXT a cluster of your own is used, and left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m loadtests.bench_cluster "$@"
fi
.venv/bin/python -m loadtests.cluster.file_image
exec bash tools/with_cluster.sh .venv/bin/python -m loadtests.bench_cluster "$@"
