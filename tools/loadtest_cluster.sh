#!/usr/bin/env bash
# Runs load tests on a cluster. SANDLOT_TEST_CONTEXT selects a cluster of your own, which stays unchanged. The profile
# `thousands` needs only the test cluster's programs, and simulates the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = thousands ]; then
    .venv/bin/python -m tests.cluster build
    exec .venv/bin/python -m loadtests.thousands "${@:2}"
fi
case " $* " in *" --peers "*) .venv/bin/python -m loadtests.load.peers ;; esac
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m loadtests.run --on cluster "$@"
fi
exec bash tools/with_cluster.sh .venv/bin/python -m loadtests.run --on cluster "$@"
