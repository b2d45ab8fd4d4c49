#!/usr/bin/env bash
# Creates .venv: uv, the third-party packages pinned by hash, our own packages editable.
set -euo pipefail
cd "$(dirname "$0")/.."
UV_VERSION=0.13.8
# The distribution's Python comes first: it is built with profile-guided optimization, which a pyenv build is not by
# default, and runs Python code up to 1.5 times as fast.
candidates=(/usr/bin/python3.11 python3.11 /usr/bin/python3.12 python3.12 /usr/bin/python3.13 python3.13 python3)
[ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
python=""
for candidate in "${candidates[@]}"; do
    if "$candidate" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "tools/setup.sh: ${PYTHON:-no Python found} is not 3.11 or newer with ensurepip; install it, or set PYTHON=/path/to/python3.11" >&2
    exit 1
fi
stamp=.venv/.stamp
want=$(cat requirements/dev.txt ./*/pyproject.toml tools/setup.sh | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
export VIRTUAL_ENV="$PWD/.venv"
uv=.venv/bin/uv
$uv pip install --quiet --require-hashes --compile-bytecode -r requirements/dev.txt
$uv pip install --quiet --no-deps --no-build-isolation -e contract -e kube -e sidecar -e gateway -e controller -e node -e sdk -e grade
echo "$want" > "$stamp"
