"""Builds the lazy snapshotter of the node agent's tests, so that no test waits for it: `python -m tests.node`."""

from __future__ import annotations

from tests.node.lazy_snapshotter import build

build()
