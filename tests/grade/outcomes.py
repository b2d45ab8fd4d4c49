"""Makes outcomes for tests of what is done with them."""

from __future__ import annotations

from typing import Any

from sandlot_grade.work import Outcome, Timings


def outcome(index: int = 0, *, kind: str = "canonical", result: str = "passed", **more: Any) -> Outcome:
    values: dict[str, Any] = {
        "task_id": f"t/{index}",
        "key": "k",
        "verdict": "exited",
        "exit_code": 0,
        "timings": Timings(
            started=index * 0.01, create=0.01, write=0.002, exec=0.05, delete=0.003, whole=0.065
        ),
    }
    return Outcome(index=index, kind=kind, result=result, **{**values, **more})
