#!/usr/bin/env bash
# Resolves all dependencies and writes the pinned lists with hashes for setup, site, the benchmark's Ray and the browser's driver.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/uv lock --upgrade
.venv/bin/uv export --quiet --format requirements-txt --all-packages --all-extras --group dev \
    --no-emit-workspace --no-annotate --no-header > requirements/dev.txt
.venv/bin/uv export --quiet --format requirements-txt --only-group site \
    --no-emit-workspace --no-annotate --no-header > requirements/site.txt
.venv/bin/uv export --quiet --format requirements-txt --only-group ray \
    --no-emit-workspace --no-annotate --no-header > requirements/ray.txt
.venv/bin/uv export --quiet --format requirements-txt --only-group console \
    --no-emit-workspace --no-annotate --no-header > requirements/console.txt
rm -f uv.lock
