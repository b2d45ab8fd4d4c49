"""The messages between the load test and the process that makes the rollouts: JSON lines over its stdin and stdout."""

from __future__ import annotations

import msgspec


class Setup(msgspec.Struct, kw_only=True):
    """The first line. The sizes are those of the pool, so that a create takes one of its sandboxes."""

    url: str  # of the gateway
    api_key: str
    model: str  # the base URL of the model
    image: str
    cpu: float
    memory_gb: float
    disk_gb: float
    label: str
    pool: str
    threads: int  # of the client of sandboxes, which has one for each call at a time


class Ask(msgspec.Struct, kw_only=True):
    """A phase to run from `start` on, by the machine's monotonic clock."""

    name: str
    start: float
    rollouts: int
    callers: int
    tests: int  # of each problem
    on: str


class Record(msgspec.Struct, kw_only=True):
    """One rollout; times are of the monotonic clock. Without `reward` its completion was masked, `error` says why.

    `sandbox` is its own one, "" where tests run in shared ones.
    """

    number: int
    sandbox: str
    error: str
    expected: float
    reward: float | None
    began: float
    inferred: float  # the model has answered
    ended: float  # the sandbox is deleted
    created: float | None = None
    testing: float | None = None
    tested: float | None = None
    asked: float | None = None  # the inference began, where it does not begin with the rollout
    in_sandlot: float | None = None  # seconds in calls of Sandlot, where they are not all after the inference

    @property
    def wall(self) -> float:
        return self.ended - self.began

    @property
    def waited(self) -> float:
        """Seconds in Sandlot's calls, else after the inference: the rest of the create, the program, its tests, the delete."""
        return self.ended - self.inferred if self.in_sandlot is None else self.in_sandlot

    @property
    def masked(self) -> bool:
        return self.reward is None


class Report(msgspec.Struct, kw_only=True):
    """The response to an Ask; the last three are those of loadtests/load/messages.py."""

    records: list[Record]
    cpu: float
    wall: float
    lags: list[float]
