#!/usr/bin/env bash
# Runs the tests of this machine in random order: in many parallel workers, then `heavy` ones in one worker per core, then
# `alone` ones, which measure the machine or its time. Most tests wait, so there are three workers per core; four per core
# are no faster and cause timeouts. SEED repeats the order of an earlier run. SCOPE selects the tests by markers: by
# default those that need only Python.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${SEED:-$RANDOM$RANDOM}
scope=${SCOPE:-not clients and not console and not loads and not programs}
cores=$(nproc)
failed=0
run() { # run WORKERS MARKS WORD...
    local code=0
    .venv/bin/python -m pytest -p randomly --randomly-seed="$seed" -n "$1" --dist worksteal -m "($scope) and $2" "${@:3}" ||
        code=$?
    [ "$code" = 0 ] || [ "$code" = 5 ] || failed=$code # 5: no tests collected
}
# run_marked WORKERS MARK MARKS WORD...: only files with such a test, since collecting all takes seconds.
run_marked() {
    local files
    mapfile -t files < <(grep -rl --include='test_*.py' "pytest\.mark\.$2\b" tests)
    [ $# -gt 3 ] && files=()
    run "$1" "$3" "${files[@]}" "${@:4}"
}
run "${WORKERS:-$((3 * cores))}" "not heavy and not alone" "$@"
run_marked "$cores" heavy "heavy and not alone" "$@"
run_marked 0 alone alone "$@"
exit "$failed"
