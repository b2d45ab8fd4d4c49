"""A claim that fails half-way, whatever the failure, is no claim."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.config import Config
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import Phase
from sandlot_sidecar.server import claim, record
from sandlot_sidecar.server.ahead import IDLE
from sandlot_sidecar.server.executor_client import ExecutorError
from sandlot_sidecar.server.instance import Instance

from tests.waiting import until

CONFIG = {"instance_id": "i", "token": "t", "listen": "127.0.0.1:1", "heartbeat": 0}


class Idle:
    """An executor that does whatever it is asked for, or a pool of runners."""

    gone = True

    def open(self) -> None:
        return

    rest = rest_later = close = pause = open

    def tell(self, message: dict[str, Any]) -> None:
        return

    async def ask(self, do: str, **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        return {}, []


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


class Slow(Idle):
    """One that takes some time for all that it is asked for."""

    gone = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, do: str, **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        self.asked.append(do)
        await asyncio.sleep(2 * IDLE)
        return {}, []


async def test_nothing_is_prepared_while_a_claim_is_applied(tmp_path: Path) -> None:
    """It would be for the conditions before the claim, and on the cores that the claim waits for."""
    executor: Any = Slow()
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(tmp_path)}), executor=executor)
    instance.life.phase, instance.record.generation = Phase.WARM, 2
    instance.sandbox.setup = {"overlay": True}
    instance.ops.pool = Idle()
    instance.webhooks.claimed = lambda **options: None
    instance.use.ahead.begin(instance.record)
    await instance.claim({"sandbox_id": "a", "token": "a", "limits": {"pids": 9}}, generation=None)
    assert executor.asked == ["apply"]
    await until(lambda: executor.asked == ["apply", "prepare"])
    instance.use.stop()


async def test_a_slot_is_checked_before_the_next_claim_can_come(tmp_path: Path) -> None:
    executor: Any = Slow()
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(tmp_path)}), executor=executor)
    instance.life.phase, instance.record.generation = Phase.WARM, 2
    instance.sandbox.setup, instance.config.root["images"] = {"overlay": True}, str(tmp_path)
    instance.use.ahead.begin(instance.record)
    await asyncio.sleep(0)
    assert executor.asked == ["check"]
    await until(lambda: executor.asked == ["check", "prepare"])
    instance.use.stop()


async def test_no_next_generation_is_prepared_after_a_check_that_a_claim_came_into(tmp_path: Path) -> None:
    executor: Any = Slow()
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(tmp_path)}), executor=executor)
    instance.life.phase, instance.record.generation = Phase.WARM, 2
    instance.sandbox.setup, instance.config.root["images"] = {"overlay": True}, str(tmp_path)
    instance.ops.pool = Idle()
    instance.webhooks.claimed = lambda **options: None
    instance.use.ahead.begin(instance.record)
    # Not for longer: after an idle moment, which a busy machine makes, the next generation is prepared.
    await asyncio.sleep(0)
    assert executor.asked == ["check"]
    await instance.claim({"sandbox_id": "a", "token": "a", "limits": {"pids": 9}}, generation=None)
    assert executor.asked == ["check", "apply"]
    await until(lambda: executor.asked == ["check", "apply", "prepare"])
    instance.use.stop()


class Refusing(Idle):
    """One that fails at one request."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.asked: list[str] = []
        self.programs: list[Any] = []

    async def ask(self, do: str, **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        self.asked.append(do)
        self.programs += [arguments["programs"]] if do == "egress" else []
        if do == self.refused:
            raise ExecutorError(409, "conflict", "no")
        return {"runners": True}, []


async def test_a_check_that_fails_does_not_keep_the_next_generation_from_being_prepared(
    tmp_path: Path,
) -> None:
    executor: Any = Refusing("check")
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(tmp_path)}), executor=executor)
    instance.life.phase, instance.record.generation = Phase.WARM, 2
    instance.sandbox.setup, instance.config.root["images"] = {"overlay": True}, str(tmp_path)
    instance.use.ahead.begin(instance.record)
    await until(lambda: executor.asked == ["check", "prepare"])
    instance.use.stop()


async def test_a_claim_whose_state_cannot_be_recorded_leaves_no_policy(tmp_path: Path) -> None:
    (tmp_path / "images/one").mkdir(parents=True)
    executor: Any = Refusing("record")
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(tmp_path)}), executor=executor)
    instance.life.phase = Phase.WARM
    instance.sandbox.setup, instance.config.root["images"] = {"overlay": True}, str(tmp_path / "images")
    instance.ops.pool = Idle()
    body = {
        "sandbox_id": "a", "token": "a",
        "image": {"id": "sha256:one", "lower": [str(tmp_path / "images/one")]},
        "egress": {"policy": {}, "allow": True, "rules": []},
    }  # fmt: skip
    with pytest.raises(ExecutorError):
        await instance.claim(body, generation=None)
    assert (instance.life.phase, instance.record.claim, instance.record.egress) == (Phase.WARM, None, None)
    assert len(executor.programs) == 2, "the policy, and none"
    assert executor.programs[0] != executor.programs[1]
    instance.use.stop()


def nested(depth: int, *, lists: bool = False) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = [value] if lists else {"a": value}
    return {"a": value} if lists else value


@pytest.mark.parametrize("lists", [False, True])
def test_meta_without_end_is_refused(lists: bool) -> None:
    body = {"sandbox_id": "a", "token": "a"}
    assert claim.parse({**body, "meta": nested(60, lists=lists)}, {})["meta"]
    for depth in (70, 978, 100_000):
        with pytest.raises(ApiError) as error:
            claim.parse({**body, "meta": nested(depth, lists=lists)}, {})
        assert (error.value.status, error.value.field) == (400, "meta")


def test_a_record_that_cannot_be_written_is_no_surprise(tmp_path: Path) -> None:
    deep = record.Record()
    deep.claim = {"meta": nested(100_000)}
    with pytest.raises(record.StoreError):
        record.store(str(tmp_path), deep, durable=False)
    assert record.load(str(tmp_path)).claim is None
