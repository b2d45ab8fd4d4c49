"""A claim that fails half-way, whatever the failure, is no claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.config import Config
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import Phase
from sandlot_sidecar.server import claim, record
from sandlot_sidecar.server.instance import Instance

CONFIG = {"instance_id": "i", "token": "t", "listen": "127.0.0.1:1", "heartbeat": 0}


class Idle:
    """An executor, or a pool of runners, that is never asked for anything."""

    gone = True

    def open(self) -> None:
        return

    rest = close = open


@pytest.mark.parametrize("failure", [RecursionError, MemoryError, record.StoreError])
async def test_a_claim_that_fails_leaves_the_instance_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    executor: Any = Idle()
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(tmp_path)}), executor=executor)
    instance.life.phase = Phase.WARM
    instance.ops.pool = Idle()
    instance.webhooks.claimed = lambda **options: None
    store = record.store

    def fail(*args: Any, **options: Any) -> None:
        raise failure("no")

    monkeypatch.setattr(record, "store", fail)
    with pytest.raises(failure):
        await instance.claim({"sandbox_id": "a", "token": "a"}, generation=None)
    assert (instance.life.phase, instance.record.claim) == (Phase.WARM, None)
    monkeypatch.setattr(record, "store", store)
    await instance.claim({"sandbox_id": "b", "token": "b"}, generation=None)
    assert instance.life.phase is Phase.CLAIMED
    assert record.load(str(tmp_path)).claim["sandbox_id"] == "b"  # type: ignore[index]
    instance.use.stop()


def nested(depth: int, *, lists: bool = False) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = [value] if lists else {"a": value}
    return {"a": value} if lists else value


@pytest.mark.parametrize("lists", [False, True])
def test_meta_without_end_is_refused(lists: bool) -> None:
    body = {"sandbox_id": "a", "token": "a"}
    assert claim.parse({**body, "meta": nested(60, lists=lists)})["meta"]
    for depth in (70, 978, 100_000):
        with pytest.raises(ApiError) as error:
            claim.parse({**body, "meta": nested(depth, lists=lists)})
        assert (error.value.status, error.value.field) == (400, "meta")


def test_a_record_that_cannot_be_written_is_no_surprise(tmp_path: Path) -> None:
    deep = record.Record()
    deep.claim = {"meta": nested(100_000)}
    with pytest.raises(record.StoreError):
        record.store(str(tmp_path), deep, durable=False)
    assert record.load(str(tmp_path)).claim is None
