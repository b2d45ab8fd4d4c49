"""Reads what harbor wrote of the trials of a job."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = "sandlot.integrations.harbor:SandlotEnvironment"
ENDING = "harbor_ending:EndingEnvironment"
PRIME = "prime"
PAGE = Path(__file__).parents[2] / "docs" / "harbor.md"
SCRIPT = Path(__file__).with_name("harbor_script.py")
# Without what harbor and its libraries ask other servers for, which takes seconds where there is no network.
ALONE = {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@dataclass(frozen=True)
class Trial:
    folder: Path
    result: dict[str, Any]

    @property
    def reward(self) -> float | None:
        return ((self.result["verifier_result"] or {}).get("rewards") or {}).get("reward")

    @property
    def exception(self) -> str | None:
        return (self.result["exception_info"] or {}).get("exception_type")

    @property
    def outcome(self) -> tuple[float | None, str | None]:
        return self.reward, self.exception


def command(tasks: Path, jobs: Path, *, environment: str, agent: str, more: Sequence[str] = ()) -> list[str]:
    """The arguments of `harbor` for all tasks of a folder."""
    return [
        *("run", "-e", environment, "-a", agent, "-p", str(tasks), "-o", str(jobs), "--quiet", "--yes"),
        *(more or ("-n", "4")),
    ]


def commands_of_the_page(tasks: Path, jobs: Path) -> list[list[str]]:
    """The arguments of each `harbor run` of docs/harbor.md, over this folder; repeated trials only twice."""
    found = [shlex.split(line)[1:] for line in re.findall(r"^harbor run .*$", PAGE.read_text(), re.MULTILINE)]
    here = {"tasks": str(tasks), "20": "2"}
    return [
        [*(here.get(word, word) for word in words), "-o", str(jobs / str(number)), "--quiet"]
        for number, words in enumerate(found)
    ]


def trials(jobs: Path) -> list[Trial]:
    """The finished trials of the jobs below a directory."""
    return [Trial(path.parent, json.loads(path.read_text())) for path in jobs.glob("*/*/result.json")]


def by_task(jobs: Path) -> dict[str, Trial]:
    return {trial.result["task_name"]: trial for trial in trials(jobs)}


def job(jobs: Path) -> dict[str, Any]:
    """What harbor wrote of the one job below a directory."""
    (path,) = jobs.glob("*/result.json")
    return json.loads(path.read_text())
