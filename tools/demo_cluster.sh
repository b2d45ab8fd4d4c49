#!/usr/bin/env bash
# The HumanEval demo in gVisor sandboxes on a real Kubernetes. Arguments go to `sandlot demo`; without any, the first
# 20 problems: a gVisor pod takes about a core-second to start, and all 164 problems are 1,354 of them.
# With SANDLOT_TEST_CONTEXT a cluster of your own is used, and left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
    set -- --problems 20 --concurrency 8
fi
demo=(.venv/bin/python -m tests.kubernetes .venv/bin/sandlot demo --image sandlot.test/python:dev "$@")
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec "${demo[@]}"
fi
exec bash tools/with_cluster.sh "${demo[@]}"
