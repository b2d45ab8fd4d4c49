#!/usr/bin/env bash
# Builds the site of docs/ into site/, or into the directory argument. Fails on a broken link or anchor, and on a page
# that loads a file from another host.
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
export NO_MKDOCS_2_WARNING=1  # otherwise each run prints an advertisement
.venv-site/bin/mkdocs build --strict --clean --site-dir "$out"
if grep -rE '<(script|link|img)[^>]+(src|href)="https?:' --include='*.html' "$out"; then
    echo "tools/site.sh: these pages load files from other hosts, but the site must work without a network; remove the URLs" >&2
    exit 1
fi
echo "$out/index.html"
