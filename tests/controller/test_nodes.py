"""Which nodes can take a pod, and which say nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandlot_controller.settings import Toleration
from sandlot_controller.world.nodes import Node, is_silent, is_usable


def node(*, ready: str = "True", **spec: Any) -> Node:
    body = {
        "metadata": {"name": "n", "labels": {"gpu": "yes"}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(body, Node)


@pytest.mark.parametrize(
    ("one", "selector", "tolerations", "usable"),
    [
        (node(), {}, [], True),
        (node(), {"gpu": "yes"}, [], True),
        (node(), {"gpu": "no"}, [], False),
        (node(ready="False"), {}, [], False),
        (node(unschedulable=True), {}, [], False),
        (node(taints=[{"key": "a", "effect": "NoSchedule"}]), {}, [], False),
        (node(taints=[{"key": "a", "effect": "PreferNoSchedule"}]), {}, [], True),
        (node(taints=[{"key": "a", "effect": "NoSchedule"}]), {}, [Toleration(operator="Exists")], True),
        (
            node(taints=[{"key": "a", "value": "1", "effect": "NoSchedule"}]),
            {},
            [Toleration(key="a", value="1")],
            True,
        ),
        (
            node(taints=[{"key": "a", "value": "1", "effect": "NoSchedule"}]),
            {},
            [Toleration(key="a", value="2")],
            False,
        ),
        (
            node(taints=[{"key": "a", "effect": "NoExecute"}]),
            {},
            [Toleration(key="a", operator="Exists", effect="NoSchedule")],
            False,
        ),
    ],
)
def test_usable_nodes(
    one: Node, selector: dict[str, str], tolerations: list[Toleration], usable: bool
) -> None:
    assert is_usable(one, selector=selector, tolerations=tolerations) is usable


def test_silent_nodes() -> None:
    assert is_silent(None)
    assert is_silent(node(ready="Unknown"))
    assert not is_silent(node(ready="False"))
