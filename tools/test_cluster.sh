#!/usr/bin/env bash
# Runs the short load tests and the tests that need published clients or Kubernetes' programs (the chart, a real API server,
# gVisor) or a browser, then those on a cluster.
# Arguments select tests of the latter. SANDLOT_TEST_CONTEXT selects a cluster of your own, which stays unchanged and whose
# nodes no test kills.
set -euo pipefail
cd "$(dirname "$0")/.."
# Without its environment a client's test fails, since they are all made here; elsewhere it is skipped.
export SANDLOT_REQUIRE_CLIENTS=1
environments() {
    .venv/bin/python -m tests.prime.environments
    .venv/bin/python -m tests.frameworks.listed
}
if [ -n "${SANDLOT_TEST_CONTEXT:-}" ]; then
    environments
    exec .venv/bin/python -m pytest -p no:randomly tests/kubernetes "$@"
fi
environments & # downloads, beside what is compiled
downloads=$!
trap 'pkill -P "$downloads" || true; kill "$downloads" 2>/dev/null || true' EXIT
.venv/bin/python -m tests.node
failed=0
if [ $# = 0 ]; then
    .venv/bin/python -m tests.cluster build
    .venv/bin/python -m tests.conformance
    .venv/bin/python -m tests.chart
    .venv/bin/python -m tests.s3
    .venv/bin/python -m tests.kubernetes.fake_gpus
fi
wait "$downloads"
trap - EXIT
if [ $# = 0 ]; then
    SCOPE='clients or loads or programs' bash tools/test.sh || failed=$?
    bash tools/test_console.sh || failed=$?
fi
bash tools/with_cluster.sh bash tools/test_on_cluster.sh "$@" || failed=$?
exit "$failed"
