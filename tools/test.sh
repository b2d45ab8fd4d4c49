#!/usr/bin/env bash
# All tests on this machine, in random order: by many parallel workers, then by few those that keep a core busy, then
# alone those that measure the machine or its time. Most tests wait more than they work, so there are more workers than
# cores. SEED repeats the order of an earlier run.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${SEED:-$RANDOM$RANDOM}
cores=$(nproc)
failed=0
run() { # run WORKERS MARKS WORD...
    .venv/bin/python -m pytest -p randomly --randomly-seed="$seed" -n "$1" --dist worksteal -m "$2" "${@:3}" || failed=$?
}
run "${WORKERS:-$((4 * cores))}" "not heavy and not alone" "$@"
run "$cores" "heavy and not alone" "$@"
run 0 alone "$@"
exit "$failed"
