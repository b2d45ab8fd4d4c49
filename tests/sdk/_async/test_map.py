"""A batch over many items: each in a sandbox of its own, again after infrastructure lost it, and resumed from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sandlot import AsyncClient, AsyncSandbox, ConfigError, SandboxLost


async def test_an_item_whose_sandbox_was_lost_is_called_again_in_another(client: AsyncClient) -> None:
    used: list[str] = []

    async def work(box: AsyncSandbox, item: int) -> int:
        used.append(box.id)
        if len(used) < 3:
            raise SandboxLost("the node is gone", verdict="sandbox_lost", sandbox_id=box.id)
        return item

    assert await AsyncSandbox.map(work, [7], attempts=3, client=client) == [7]
    assert len(set(used)) == 3
    used.clear()
    with pytest.raises(SandboxLost, match="the node is gone"):
        await AsyncSandbox.map(work, [7], attempts=2, client=client)
    assert len(used) == 2
    with pytest.raises(ValueError, match=r"^attempts"):
        await AsyncSandbox.map(work, [7], attempts=0, client=client)


async def test_each_attempt_of_an_item_has_arguments_of_its_own(client: AsyncClient) -> None:
    asked: list[str] = []

    async def arguments(item: str) -> Mapping[str, Any]:
        asked.append(item)
        return {"labels": [f"{item}{asked.count(item)}"]}

    async def work(box: AsyncSandbox, item: str) -> list[str]:
        if item == "b" and asked.count("b") == 1:
            raise SandboxLost("the node is gone", verdict="sandbox_lost", sandbox_id=box.id)
        return list(box.info.labels)

    options: dict[str, Any] = {"create_for": arguments, "labels": ["all"], "attempts": 2, "concurrency": 1}
    assert await AsyncSandbox.map(work, ["a", "b"], **options, client=client) == [["a1"], ["b2"]]
    assert asked == ["a", "b", "b"]


async def test_what_the_code_or_the_caller_ended_is_not_called_again(client: AsyncClient) -> None:
    used: list[str] = []

    async def work(box: AsyncSandbox, item: int) -> None:
        used.append(box.id)
        raise SandboxLost("its time is over", verdict="deadline", sandbox_id=box.id)

    with pytest.raises(SandboxLost, match="its time is over"):
        await AsyncSandbox.map(work, [1], attempts=3, client=client)
    assert len(used) == 1


async def test_a_later_run_calls_only_items_without_a_result(client: AsyncClient, tmp_path: Path) -> None:
    called: list[int] = []
    file = tmp_path / "results.jsonl"

    async def work(box: AsyncSandbox, item: int) -> list[str]:
        called.append(item)
        if item == 3 and called.count(3) == 1:
            raise ValueError("three")
        return [(await box.exec(f"echo {item}")).stdout]

    with pytest.raises(ValueError, match="three"):
        await AsyncSandbox.map(work, [1, 2, 3], concurrency=1, resume=file, client=client)
    with file.open("a") as torn:
        torn.write('{"key": "4", "resu')  # its process was killed while it wrote
    results = await AsyncSandbox.map(work, [1, 2, 2, 3], concurrency=1, resume=file, client=client)
    assert results == [["1\n"], ["2\n"], ["2\n"], ["3\n"]]
    assert called == [1, 2, 3, 2, 3], "equal items have a result each"
    assert len(file.read_text().splitlines()) == 4


async def test_items_and_results_of_a_resumed_batch_are_json(client: AsyncClient, tmp_path: Path) -> None:
    async def work(box: AsyncSandbox, item: object) -> object:
        return item

    odd = object()
    with pytest.raises(ValueError, match="item 1 is not JSON"):
        await AsyncSandbox.map(work, [1, odd], resume=tmp_path / "a", client=client)
    with pytest.raises(TypeError, match="resume needs results that are JSON"):
        await AsyncSandbox.map(work, [odd], resume=tmp_path / "a", key=lambda _: "odd", client=client)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n")
    with pytest.raises(ConfigError, match="line 1"):
        await AsyncSandbox.map(work, [1], resume=other, client=client)
    assert other.read_text() == "a,b\n"
