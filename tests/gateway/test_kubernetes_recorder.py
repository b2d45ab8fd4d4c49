"""The recorder of claims and ends, on its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sandlot_contract.ids import InstanceId
from sandlot_gateway.backends.kubernetes.instances import SeenInstance
from sandlot_gateway.backends.kubernetes.recorder import Recorder
from sandlot_gateway.backends.kubernetes.view import View

POD = InstanceId("i-1")


async def test_a_closed_recorder_writes_no_end() -> None:
    """Its writes would fail: the client of the API server is closed after it."""
    ended: list[Any] = []
    recorded = SimpleNamespace(without_end=lambda *_: [1], has_end=lambda *_: False)
    records = SimpleNamespace(end=lambda *_, **__: ended.append(_), ending=lambda end: end)
    view = SimpleNamespace(recorded=recorded, records=records)
    recorder = Recorder(
        cast("View", view), announce=lambda *_: None, late_record=60.0, late_end=0.01, young=0.0
    )
    recorder.reached(cast("SeenInstance", SimpleNamespace(instance=SimpleNamespace(id=POD), generation=2)))
    assert recorder.has_end(POD, 1)
    recorder.close()
    assert not recorder.has_end(POD, 1)
    await asyncio.sleep(0.05)
    assert not ended
