#!/usr/bin/env bash
# A run of pytest in which what failed may try once more, by itself; both runs are printed. Hostile sandboxes and
# thousands of processes on a machine with two cores make some miss deadlines that a larger one keeps.
set -uo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pytest "$@"
case $? in
    0) exit 0 ;;
    1) echo "Once more, by themselves, those that failed:" && exec .venv/bin/python -m pytest --last-failed --last-failed-no-failures none "$@" ;;
    3) exec .venv/bin/python -m pytest "$@" ;;  # pytest itself broke off: the rest has not run
    *) exit 1 ;;
esac
