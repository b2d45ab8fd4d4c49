#!/usr/bin/env bash
# Upgrades a release of an earlier commit's images and chart to today's, with sandboxes and a command running:
# builds the former unless they are in the cache, which needs the repository's history. SANDLOT_UPGRADE_FROM names
# another commit or tag.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m tests.kubernetes.old_release
exec bash tools/with_cluster.sh env SANDLOT_TEST_UPGRADE=1 \
    .venv/bin/python -m pytest -p no:randomly tests/kubernetes/test_upgrade.py "$@"
