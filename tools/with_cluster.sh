#!/usr/bin/env bash
# Runs a command on the test cluster: cluster up, images on its nodes, the command in its network (kubectl and helm in
# PATH, KUBECONFIG set), down. A running cluster stays up.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=".venv/bin/python -m tests.cluster"
if ! $cluster status >/dev/null 2>&1; then
    trap '$cluster down' EXIT
fi
$cluster up
$cluster load-image $(.venv/bin/python -m images build)
# Helm leaves resource definitions as they are, and an upgrade test that was killed has left those of an earlier commit.
$cluster run -- sh -c 'cd charts/sandlot/crds && if [ -n "$(kubectl get --ignore-not-found -o name -f .)" ]; then
    kubectl apply --server-side --force-conflicts -f .; fi'
if ! $cluster run -- env SANDLOT_TEST_CLUSTER=1 "$@"; then
    $cluster logs
    exit 1
fi
