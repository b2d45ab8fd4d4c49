# This file is auto-generated from tests/sdk/_async/test_map.py by tools/async_to_sync.py: do not change it.
"""A batch over many items: each in a sandbox of its own, again after infrastructure lost it, and resumed from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sandlot import Client, ConfigError, Sandbox, SandboxLost


def test_an_item_whose_sandbox_was_lost_is_called_again_in_another(client: Client) -> None:
    used: list[str] = []

    def work(box: Sandbox, item: int) -> int:
        used.append(box.id)
        if len(used) < 3:
            raise SandboxLost("the node is gone", verdict="sandbox_lost", sandbox_id=box.id)
        return item

    assert Sandbox.map(work, [7], attempts=3, client=client) == [7]
    assert len(set(used)) == 3
    used.clear()
    with pytest.raises(SandboxLost, match="the node is gone"):
        Sandbox.map(work, [7], attempts=2, client=client)
    assert len(used) == 2
    with pytest.raises(ValueError, match=r"^attempts"):
        Sandbox.map(work, [7], attempts=0, client=client)


def test_each_attempt_of_an_item_has_arguments_of_its_own(client: Client) -> None:
    asked: list[str] = []

    def arguments(item: str) -> Mapping[str, Any]:
        asked.append(item)
        return {"labels": [f"{item}{asked.count(item)}"]}

    def work(box: Sandbox, item: str) -> list[str]:
        if item == "b" and asked.count("b") == 1:
            raise SandboxLost("the node is gone", verdict="sandbox_lost", sandbox_id=box.id)
        return list(box.info.labels)

    options: dict[str, Any] = {"create_for": arguments, "labels": ["all"], "attempts": 2, "concurrency": 1}
    assert Sandbox.map(work, ["a", "b"], **options, client=client) == [["a1"], ["b2"]]
    assert asked == ["a", "b", "b"]


def test_what_the_code_or_the_caller_ended_is_not_called_again(client: Client) -> None:
    used: list[str] = []

    def work(box: Sandbox, item: int) -> None:
        used.append(box.id)
        raise SandboxLost("its time is over", verdict="deadline", sandbox_id=box.id)

    with pytest.raises(SandboxLost, match="its time is over"):
        Sandbox.map(work, [1], attempts=3, client=client)
    assert len(used) == 1


def test_a_later_run_calls_only_items_without_a_result(client: Client, tmp_path: Path) -> None:
    called: list[int] = []
    file = tmp_path / "results.jsonl"

    def work(box: Sandbox, item: int) -> list[str]:
        called.append(item)
        if item == 3 and called.count(3) == 1:
            raise ValueError("three")
        return [(box.exec(f"echo {item}")).stdout]

    with pytest.raises(ValueError, match="three"):
        Sandbox.map(work, [1, 2, 3], concurrency=1, resume=file, client=client)
    with file.open("a") as torn:
        torn.write('{"key": "4", "resu')  # its process was killed while it wrote
    results = Sandbox.map(work, [1, 2, 2, 3], concurrency=1, resume=file, client=client)
    assert results == [["1\n"], ["2\n"], ["2\n"], ["3\n"]]
    assert called == [1, 2, 3, 2, 3], "equal items have a result each"
    assert len(file.read_text().splitlines()) == 4


def test_items_and_results_of_a_resumed_batch_are_json(client: Client, tmp_path: Path) -> None:
    def work(box: Sandbox, item: object) -> object:
        return item

    odd = object()
    with pytest.raises(ValueError, match="item 1 is not JSON"):
        Sandbox.map(work, [1, odd], resume=tmp_path / "a", client=client)
    with pytest.raises(TypeError, match="resume needs results that are JSON"):
        Sandbox.map(work, [odd], resume=tmp_path / "a", key=lambda _: "odd", client=client)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n")
    with pytest.raises(ConfigError, match="line 1"):
        Sandbox.map(work, [1], resume=other, client=client)
    assert other.read_text() == "a,b\n"
