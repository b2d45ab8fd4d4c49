#!/usr/bin/env bash
# All tests on this machine: in random order by parallel workers, then those that measure the machine or its time, alone.
# Most tests wait more than they work, so there are more workers than cores. SEED repeats the order of an earlier run.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${SEED:-$RANDOM$RANDOM}
failed=0
.venv/bin/python -m pytest -p randomly --randomly-seed="$seed" -n "${WORKERS:-$((2 * $(nproc)))}" --dist worksteal -m "not alone" "$@" ||
    failed=$?
.venv/bin/python -m pytest -p randomly --randomly-seed="$seed" -m alone "$@" || failed=$?
exit "$failed"
