#!/usr/bin/env bash
# Runs the HumanEval demo in gVisor sandboxes on a cluster. Arguments go to `sandlot demo`; the default is 20 problems,
# since a gVisor pod takes about a core-second to start and all 164 problems need 1,354 pods.
# SANDLOT_TEST_CONTEXT selects a cluster of your own, which stays unchanged.
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
