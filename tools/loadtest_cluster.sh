#!/usr/bin/env bash
# Load tests on a real Kubernetes. With SANDLOT_TEST_CONTEXT a cluster of your own is used, and left as it was.
set -euo pipefail
cd "$(dirname "$0")/.."
case " $* " in *" --peers "*) .venv/bin/python -m loadtests.load.peers ;; esac
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m loadtests.run --on cluster "$@"
fi
exec bash tools/with_cluster.sh .venv/bin/python -m loadtests.run --on cluster "$@"
