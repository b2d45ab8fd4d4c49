#!/usr/bin/env bash
# Runs load tests on a cluster. SANDLOT_TEST_CONTEXT selects a cluster of your own, which stays unchanged. The profiles
# `thousands`, `autoscale`, `dns-churn` and `console` need only the test cluster's programs, and simulate the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in thousands | autoscale | dns-churn | console)
    .venv/bin/python -m tests.cluster build
    if [ "$1" = console ]; then .venv/bin/python -m tests.console; fi
    exec .venv/bin/python -m "loadtests.${1//-/_}" "${@:2}"
    ;;
esac
case " $* " in *" code-env"* | *" all "*) .venv/bin/python -m loadtests.code_env.frameworks ;; esac
case " $* " in *" --peers "*) .venv/bin/python -m loadtests.load.peers ;; esac
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    exec .venv/bin/python -m loadtests.run --on cluster "$@"
fi
exec bash tools/with_cluster.sh .venv/bin/python -m loadtests.run --on cluster "$@"
