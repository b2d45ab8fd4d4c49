#!/usr/bin/env bash
# Creates .venv: uv, the third-party packages pinned by hash, our own packages editable.
set -euo pipefail
cd "$(dirname "$0")/.."
UV_VERSION=0.13.8
python=""
for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "tools/setup.sh: found no Python 3.11 or newer; install it, or set PYTHON=/path/to/python3.11" >&2
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
