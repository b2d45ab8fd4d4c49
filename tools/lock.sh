#!/usr/bin/env bash
# Resolves every dependency again and writes the pinned, hashed list that setup installs.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/uv lock --upgrade
.venv/bin/uv export --quiet --format requirements-txt --all-packages --all-extras --group dev \
    --no-emit-workspace --no-annotate --no-header > requirements/dev.txt
rm -f uv.lock
