"""What a pod needs of a node, as Kubernetes counts it, and which nodes admit it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandlot_controller.plan.placement.needs import Needs, allocatable, of_spec
from sandlot_controller.plan.placement.nodes import NodeView, Taint
from sandlot_kube.objects import PodSpec, Toleration


def asks(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": {name.replace("_", "-"): text for name, text in requests.items()}}}


def spec(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def test_requests_are_added_and_the_overhead_with_them() -> None:
    found = of_spec(
        spec(
            containers=[
                asks(cpu="0.1", memory="256Mi"),
                asks(cpu="10m", memory="32Mi", ephemeral_storage="0"),
            ],
            initContainers=[asks(cpu="10m", memory="1Gi")],
            overhead={"cpu": "250m", "memory": "120Mi"},
        )
    )
    assert dict(found.requests) == {"cpu": 360, "memory": (1024 + 120) << 20, "pods": 1}


def test_what_admission_added_counts() -> None:
    toleration = {"key": "a", "operator": "Exists", "tolerationSeconds": 30}
    found = of_spec(spec(nodeSelector={"b": "2", "a": "1"}, tolerations=[toleration]))
    assert found.selector == (("a", "1"), ("b", "2"))
    assert found.tolerations == (Toleration(key="a", operator="Exists"),)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", 1),
        ("1500m", 2),
        ("0.5", 1),
        ("1k", 1000),
        ("2Ki", 2048),
        ("1.5Gi", 3 << 29),
        ("1e3", 1000),
        ("12E", 12 * 10**18),
        ("3Ei", 3 << 60),
        ("100n", 1),
    ],
)
def test_quantities(text: str, amount: int) -> None:
    assert dict(of_spec(spec(containers=[asks(memory=text)])).requests)["memory"] == amount


def test_a_node_has_no_more_than_it_says() -> None:
    assert allocatable({"cpu": "1930m", "memory": "1500m", "pods": "110"}) == {
        "cpu": 1930,
        "memory": 1,
        "pods": 110,
    }


@pytest.mark.parametrize("text", ["", "x", "1X", "1 Gi", "."])
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        allocatable({"cpu": text})


def node(*taints: Taint, usable: bool = True) -> NodeView:
    return NodeView("n", labels={"gpu": "yes"}, taints=taints, usable=usable)


def tolerant(*tolerations: Toleration) -> Needs:
    return Needs((), tolerations=tolerations)


@pytest.mark.parametrize(
    ("one", "wanted", "admitted"),
    [
        (node(), Needs(()), True),
        (node(), Needs((), selector=(("gpu", "yes"),)), True),
        (node(), Needs((), selector=(("gpu", "no"),)), False),
        (node(usable=False), Needs(()), False),
        (node(Taint("a", effect="NoSchedule")), Needs(()), False),
        (node(Taint("a", effect="PreferNoSchedule")), Needs(()), True),
        (node(Taint("a", effect="NoSchedule")), tolerant(Toleration(operator="Exists")), True),
        (node(Taint("a", "1", "NoSchedule")), tolerant(Toleration(key="a", value="1")), True),
        (node(Taint("a", "1", "NoSchedule")), tolerant(Toleration(key="a", value="2")), False),
        (
            node(Taint("a", effect="NoExecute")),
            tolerant(Toleration(key="a", operator="Exists", effect="NoSchedule")),
            False,
        ),
    ],
)
def test_which_nodes_admit_a_pod(one: NodeView, wanted: Needs, admitted: bool) -> None:
    assert one.admits(wanted) is admitted


def test_a_taint_that_only_prefers_others_discourages() -> None:
    soft = node(Taint("a", effect="PreferNoSchedule"))
    assert soft.is_discouraged(Needs(()))
    assert not soft.is_discouraged(tolerant(Toleration(key="a", operator="Exists")))
    assert not node(Taint("a", effect="NoSchedule")).is_discouraged(Needs(()))
