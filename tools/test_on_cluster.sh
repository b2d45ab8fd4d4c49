#!/usr/bin/env bash
# Runs the tests on the cluster that is up: most of them in two workers, each with releases of its own, since one leaves
# half of the machine idle; then, one by one, those that break nodes or fill them, the outages last. Arguments select.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
run() { # run MARKS WORD...
    local code=0
    .venv/bin/python -m pytest -p no:randomly -m "$1" tests/kubernetes tests/cluster/test_live.py "${@:2}" || code=$?
    [ "$code" = 0 ] || [ "$code" = 5 ] || failed=$code # 5: no tests collected
}
run "not whole_cluster" -n 2 --dist loadscope --no-loadscope-reorder "$@"
run whole_cluster "$@"
exit "$failed"
