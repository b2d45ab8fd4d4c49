"""An OpenEnv environment for the page's example: it adds numbers up."""

from __future__ import annotations

from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Add(Action):
    number: int


class Sum(Observation):
    total: int


class Adding(Environment):
    total = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Sum:
        self.total = 0
        return self._sum()

    def step(self, action: Add, timeout_s: float | None = None, **_: Any) -> Sum:
        self.total += action.number
        return self._sum()

    @property
    def state(self) -> State:
        return State(step_count=self.total)

    def _sum(self) -> Sum:
        return Sum(total=self.total, done=self.total > 2, reward=float(self.total))


app = create_fastapi_app(Adding, Add, Sum)
