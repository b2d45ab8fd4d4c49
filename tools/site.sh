#!/usr/bin/env bash
# Builds the site of docs/ into site/, or into the folder named. Fails on a broken link or anchor, and where a page
# would load something from elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-site}")
stamp=.venv-site/.stamp
want=$(cat requirements/site.txt tools/site.sh | sha256sum)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$want" ]; then
    rm -rf .venv-site
    .venv/bin/uv venv --quiet --python .venv/bin/python .venv-site
    VIRTUAL_ENV="$PWD/.venv-site" .venv/bin/uv pip install --quiet --require-hashes -r requirements/site.txt
    echo "$want" > "$stamp"
fi
export NO_MKDOCS_2_WARNING=1  # an advertisement of its successor on each run
.venv-site/bin/mkdocs build --strict --clean --site-dir "$out"
if grep -rE '<(script|link|img)[^>]+(src|href)="https?:' --include='*.html' "$out"; then
    echo "tools/site.sh: these pages load something from elsewhere; the site has to work without a network" >&2
    exit 1
fi
echo "$out/index.html"
