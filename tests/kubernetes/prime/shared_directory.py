"""A directory of one node as a volume of many pods, for a cluster that has no storage of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kubernetes.boxes import namespace, plain_pod
from tests.kubernetes.stack import IMAGE, Stack

USER = 65532  # the gateway's; a directory of the node belongs to root

# Holds the directory for as long as it runs, and takes its content away at the end.
KEEPER = f"""
import os, shutil, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.chown('/shared', {USER}, {USER})
open('/tmp/ready', 'w').close()
signal.sigwait([signal.SIGTERM])
for entry in os.scandir('/shared'):
    shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
"""


@contextmanager
def shared_directory(stack: Stack, name: str) -> Iterator[str]:
    """A PersistentVolumeClaim in the release's namespace; pods that mount it all go to one node, where `flock` holds.

    Whoever mounts it has to be gone before the block ends, else the claim waits for it.
    """
    nodes = stack.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
    node = nodes[0]["metadata"]["name"]
    path = f"/var/lib/sandlot-test/{stack.namespace}-{name}"
    volume, unique = {"path": path, "type": "DirectoryOrCreate"}, f"{stack.namespace}-{name}"
    keeper = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "shared", "hostPath": volume}],
        "containers": [
            {
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["python3", "-c", KEEPER],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                "readinessProbe": {
                    "exec": {"command": ["test", "-e", "/tmp/ready"]},
                    "periodSeconds": 1,
                },
            }
        ],
    }
    with namespace(stack, f"{unique}-keeper") as elsewhere, plain_pod(stack, elsewhere, "keeper", keeper):
        stack.kubectl("apply", "-f", "-", stdin=json.dumps(_documents(stack, name, unique, node, volume)))
        try:
            yield name
        finally:
            stack.kubectl("delete", "pvc", name, "-n", stack.namespace, "--ignore-not-found", "--wait")
            stack.kubectl("delete", "pv", unique, "--ignore-not-found", "--wait")


def _documents(stack: Stack, name: str, unique: str, node: str, volume: dict[str, str]) -> dict[str, Any]:
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stack.namespace}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": unique},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "hostPath": volume,
                "persistentVolumeReclaimPolicy": "Retain",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": stack.namespace},
            "spec": {**common, "volumeName": unique, "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}
