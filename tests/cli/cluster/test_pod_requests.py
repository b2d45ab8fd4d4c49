"""What pods request of their nodes is counted as the scheduler does."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot.cli.cluster.doc import Doc
from sandlot.cli.cluster.pod_requests import Amounts, add

GIB = 1 << 30


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    given = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"resources": {"requests": given}, **more}


def pod(*containers: dict[str, Any], node: str = "a", phase: str = "Running", **spec: Any) -> Doc:
    return Doc(
        {"spec": {"nodeName": node, "containers": list(containers), **spec}, "status": {"phase": phase}}
    )


def by_node(*pods: Doc) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {}
    add(found, pods)
    return found


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (
            pod(container("250m", "1Gi"), container("1", "512Mi")),
            {"cpu": 1.25, "memory": 1.5 * GIB, "pods": 1},
        ),
        (pod(container()), {"pods": 1}),
        # One that ends before the others begin needs no room beside them; one that stays does.
        (pod(container("1"), initContainers=[container("300m"), container("2")]), {"cpu": 2, "pods": 1}),
        (
            pod(container("1"), initContainers=[container("300m", restartPolicy="Always")]),
            {"cpu": 1.3, "pods": 1},
        ),
        # One that stays runs beside those that begin after it, and not beside those that ended before.
        (
            pod(
                container("1"),
                initContainers=[container("2500m"), container("1", restartPolicy="Always"), container("2")],
            ),
            {"cpu": 3, "pods": 1},
        ),
        (
            pod(container("1", "1Gi"), resources={"requests": {"cpu": "2"}}, overhead={"cpu": "1"}),
            {"cpu": 3, "memory": GIB, "pods": 1},
        ),
        (
            pod({"resources": {"requests": {"nvidia.com/gpu": "4", "ephemeral-storage": "1Gi"}}}),
            {"nvidia.com/gpu": 4, "ephemeral-storage": GIB, "pods": 1},
        ),
        (
            pod(container("1"), overhead={"cpu": "250m", "memory": "160Mi"}),
            {"cpu": 1.25, "memory": 160 << 20, "pods": 1},
        ),
        (pod(container("1"), phase="Pending"), {"cpu": 1, "pods": 1}),
    ],
    ids=[
        "containers",
        "none",
        "before",
        "beside",
        "beside one before",
        "of the pod",
        "devices and disk",
        "overhead",
        "pending",
    ],
)
def test_requests_of_a_pod(one: Doc, expected: Amounts) -> None:
    assert by_node(one) == {"a": expected}


def test_pods_that_have_ended_or_have_no_node_take_nothing() -> None:
    pods = [pod(container("1"), phase=phase) for phase in ("Succeeded", "Failed")]
    waiting = pod(container("1"), node="")
    assert by_node(*pods, waiting, pod(container("1"), node="b")) == {"b": {"cpu": 1, "pods": 1}}
