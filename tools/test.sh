#!/usr/bin/env bash
# Tests on this machine, in random order: by many parallel workers, then by few those that keep a core busy, then alone
# those that measure the machine or its time. Most tests wait more than they work, so there are more workers than cores;
# with four times as many they take as long and time out more. SEED repeats the order of an earlier run. SCOPE: which
# tests; those that need nothing but Python, or `programs` for those that need what `make cluster` builds.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${SEED:-$RANDOM$RANDOM}
scope=${SCOPE:-not programs}
cores=$(nproc)
failed=0
run() { # run WORKERS MARKS WORD...
    local code=0
    .venv/bin/python -m pytest -p randomly --randomly-seed="$seed" -n "$1" --dist worksteal -m "$scope and $2" "${@:3}" ||
        code=$?
    [ "$code" = 0 ] || [ "$code" = 5 ] || failed=$code # 5: no test is of this kind
}
# run_marked WORKERS MARK MARKS WORD...: of the files that have such a test, since to collect all of them takes seconds.
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
