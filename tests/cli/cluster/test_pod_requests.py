"""What pods request of their nodes is counted as the scheduler does."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot.cli.cluster.doc import Doc
from sandlot.cli.cluster.pod_requests import Amounts, by_node

GIB = 1 << 30


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    given = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"resources": {"requests": given}, **more}


def pod(*containers: dict[str, Any], node: str = "a", phase: str = "Running", **spec: Any) -> Doc:
    return Doc(
        {"spec": {"nodeName": node, "containers": list(containers), **spec}, "status": {"phase": phase}}
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(container("250m", "1Gi"), container("1", "512Mi")), Amounts(1.25, 1.5 * GIB, 1)),
        (pod(container()), Amounts(0, 0, 1)),
        # One that ends before the others begin needs no room beside them; one that stays does.
        (pod(container("1"), initContainers=[container("300m"), container("2")]), Amounts(2, 0, 1)),
        (pod(container("1"), initContainers=[container("300m", restartPolicy="Always")]), Amounts(1.3, 0, 1)),
        (pod(container("1"), overhead={"cpu": "250m", "memory": "160Mi"}), Amounts(1.25, 160 << 20, 1)),
        (pod(container("1"), phase="Pending"), Amounts(1, 0, 1)),
    ],
    ids=["containers", "none", "before", "beside", "overhead", "pending"],
)
def test_requests_of_a_pod(one: Doc, expected: Amounts) -> None:
    assert by_node([one]) == {"a": expected}


def test_pods_that_have_ended_or_have_no_node_take_nothing() -> None:
    pods = [pod(container("1"), phase=phase) for phase in ("Succeeded", "Failed")]
    waiting = pod(container("1"), node="")
    assert by_node([*pods, waiting, pod(container("1"), node="b")]) == {"b": Amounts(1, 0, 1)}
