"""What a pod's death means, without I/O."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot_kube import verdicts

from tests.controller.objects import container, pod


@pytest.mark.parametrize(
    ("said", "verdict", "certain"),
    [
        (
            {"containerStatuses": [container("sandbox", waiting={"reason": "ErrImagePull"})]},
            "image_pull",
            True,
        ),
        (
            {"containerStatuses": [container("sidecar", waiting={"reason": "InvalidImageName"})]},
            "image_pull",
            True,
        ),
        (
            {"containerStatuses": [container("sandbox", waiting={"reason": "CreateContainerError"})]},
            "start_failed",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container("sandbox", terminated={"reason": "StartError", "exitCode": 128})
                ]
            },
            "start_failed",
            True,
        ),
        ({"phase": "Failed", "reason": "OutOfpods"}, "start_failed", True),
        ({"phase": "Failed", "reason": "Evicted"}, "evicted", True),
        ({"phase": "Succeeded"}, "sandbox_lost", False),
        ({"containerStatuses": [container("sidecar", terminated={"exitCode": 0})]}, "sidecar_lost", False),
        ({"containerStatuses": [container("sidecar", terminated={"exitCode": 9})]}, "sidecar_lost", True),
        (
            {
                "containerStatuses": [
                    container("sidecar", terminated={"exitCode": 0}),
                    container("sandbox", terminated={"exitCode": 137, "reason": "OOMKilled"}),
                ]
            },
            "oom",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container("sidecar", terminated={"exitCode": 128, "reason": "OOMKilled"}),
                    container("sandbox", terminated={"exitCode": 128, "reason": "Error"}),
                ]
            },
            "oom",
            True,
        ),
        (
            {
                "containerStatuses": [
                    container("sidecar", terminated={"exitCode": 128, "reason": "OOMKilled"}),
                    container("sandbox", running={}),
                ]
            },
            "sidecar_lost",
            False,
        ),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
                ]
            },
            "evicted",
            True,
        ),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                ]
            },
            "node_lost",
            True,
        ),
    ],
)
def test_verdicts(said: dict[str, Any], verdict: str, certain: bool) -> None:
    found = verdicts.of_pod(pod(**said))
    assert found is not None
    assert (found.verdict, found.certain) == (verdict, certain)
    assert found.message


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"phase": "Running", "containerStatuses": [container("sandbox", running={})]},
        {"containerStatuses": [container("sandbox", waiting={"reason": "ContainerCreating"})]},
        {"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}]},
    ],
)
def test_a_living_pod_has_no_verdict(said: dict[str, Any]) -> None:
    assert verdicts.of_pod(pod(**said)) is None
