#!/usr/bin/env bash
# Runs the tests of this machine in random order: in many parallel workers, then `heavy` ones in one worker per core, then
# `alone` ones, which measure the machine or its time. Most tests wait, so there are three workers per core; four per core
# are no faster and cause timeouts. SEED repeats the order of an earlier run. SCOPE selects the tests by markers, `clients or
# loads` say: by default those that need only Python.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${SEED:-$RANDOM$RANDOM}
scope=${SCOPE:-not clients and not console and not loads and not programs}
cores=$(nproc)
failed=0
# marked MARK...: the files with such tests. Each worker collects all that it is given, which takes seconds of CPU.
marked() { .venv/bin/python tools/marked_files.py "$@"; }
of_scope=(tests)
if [[ ! $scope =~ not|and ]]; then
    mapfile -t of_scope < <(marked ${scope// or / })
fi
if [ ! -d tests/__pycache__ ]; then # else each worker compiles all of the tests
    find tests -name 'test_*.py' -print0 |
        xargs -0 -n 320 -P "$cores" .venv/bin/python -m pytest --collect-only -q > /dev/null || true
fi
run() { # run WORKERS MARKS FILE-OR-WORD...
    local code=0
    .venv/bin/python -m pytest -p randomly --randomly-seed="$seed" -n "$1" --dist worksteal -m "($scope) and $2" "${@:3}" ||
        code=$?
    [ "$code" = 0 ] || [ "$code" = 5 ] || failed=$code # 5: no tests collected
}
# run_marked WORKERS MARK MARKS WORD...: without words, only files of the scope with such a test.
run_marked() {
    local files=("${@:4}")
    if [ $# = 3 ]; then
        mapfile -t files < <(comm -12 <(marked "$2" | sort) <(find "${of_scope[@]}" -name 'test_*.py' | sort))
        [ ${#files[@]} -gt 0 ] || return 0
    fi
    run "$1" "$3" "${files[@]}"
}
[ $# -gt 0 ] && first=("$@") || first=("${of_scope[@]}")
run "${WORKERS:-$((3 * cores))}" "not heavy and not alone" "${first[@]}"
run_marked "$cores" heavy "heavy and not alone" "$@"
run_marked 0 alone alone "$@"
exit "$failed"
