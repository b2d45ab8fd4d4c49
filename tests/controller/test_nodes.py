"""Which nodes say nothing."""

from __future__ import annotations

import msgspec
from sandlot_controller.world.nodes import Node, is_silent


def node(*, ready: str) -> Node:
    body = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    return msgspec.convert(body, Node)


def test_silent_nodes() -> None:
    assert is_silent(None)
    assert is_silent(node(ready="Unknown"))
    assert not is_silent(node(ready="False"))
