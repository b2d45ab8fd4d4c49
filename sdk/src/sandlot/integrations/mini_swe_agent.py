"""An environment of mini-swe-agent: its setting `environment_class` takes the path of SandlotEnvironment."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import os
from typing import Any

from minisweagent.exceptions import InterruptAgentFlow, Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel, ConfigDict, field_validator

from sandlot._sync.sandbox import Sandbox
from sandlot.errors import SandboxLost, StartFailed
from sandlot.integrations._ended import SandboxEnd
from sandlot.integrations._lost_commands import own_end
from sandlot.models import Verdict

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_UNAME = "uname -s; uname -n; uname -r; uname -v; uname -m"
_UNAME_FIELDS = ("system", "node", "release", "version", "machine")
_MERGED = (
    "sh",
    "-c",
    'exec "$@" 2>&1',
    "sh",
)  # standard output and error in the order in which they were written


class SandlotEnvironmentConfig(BaseModel):
    """What mini-swe-agent's Docker environment has too, and `create`: arguments of `sandlot.Sandbox.create`."""

    model_config = ConfigDict(extra="forbid")

    image: str
    cwd: str = "/"
    env: dict[str, str] = {}
    forward_env: list[str] = []
    timeout: float = 30
    interpreter: list[str] = ["bash", "-lc"]
    container_timeout: float = 7200.0
    create: dict[str, Any] = {}

    @field_validator("create")
    @classmethod
    def _no_secrets(cls, create: dict[str, Any]) -> dict[str, Any]:
        if "secrets" in create:
            raise ValueError("create.secrets: trajectories would contain them; use secret_refs")
        return create


class SandlotEnvironment:
    """Runs an agent's commands in a sandbox that ends with `cleanup`, with this object, or with the process.

    A sandbox that the infrastructure lost raises `sandlot.SandboxLost`, which becomes the run's exit status.
    """

    def __init__(
        self, *, config_class: type[SandlotEnvironmentConfig] = SandlotEnvironmentConfig, **kwargs: Any
    ):
        self.config = config_class(**kwargs)
        arguments: dict[str, Any] = {"timeout": self.config.container_timeout, **self.config.create}
        self._box = Sandbox.create(self.config.image, **arguments)
        self._end = SandboxEnd(self, self._box)
        self._uname: dict[str, str] | None = None

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run the command of an action. Raises Submitted when its output says that the task is done."""
        limit = timeout or self.config.timeout
        words = [*_MERGED, *self.config.interpreter, str(action.get("command", ""))]
        try:
            result = self._box.exec(words, cwd=cwd or self.config.cwd, env=self._environment(), timeout=limit)
            own_end(result, self._box.id)
        except StartFailed as error:
            return {"output": str(error), "returncode": 126, "exception_info": ""}
        except SandboxLost as error:
            if error.infrastructure:
                raise
            extra = {"exit_status": error.verdict, "submission": ""}
            raise InterruptAgentFlow({"role": "exit", "content": str(error), "extra": extra}) from error
        output: dict[str, Any] = {
            "output": result.stdout + result.stderr,  # the sandbox's own note of a limit
            "returncode": result.exit_code,
            "exception_info": "",
        }
        if result.verdict != Verdict.EXITED:
            output["extra"] = {"verdict": result.verdict.value}
        if result.verdict == Verdict.TIMEOUT:
            output |= {"returncode": -1, "exception_info": f"The command ran longer than {limit:g} s."}
        _raise_submitted(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the settings and the sandbox's `uname`, for prompts."""
        if self._uname is None:
            lines = self._box.exec(["sh", "-c", _UNAME], timeout=30).stdout.splitlines()
            self._uname = dict(zip(_UNAME_FIELDS, lines, strict=False))
        return recursive_merge(self.config.model_dump(), self._uname, kwargs)

    def serialize(self) -> dict[str, Any]:
        """Return what a trajectory tells of its environment."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config, "sandbox_id": self._box.id}}

    def cleanup(self) -> None:
        """End the sandbox."""
        self._end.now()

    def _environment(self) -> dict[str, str]:
        forwarded = {name: os.environ[name] for name in self.config.forward_env if name in os.environ}
        return {**forwarded, **self.config.env}


def _raise_submitted(output: dict[str, Any]) -> None:
    first, _, submission = str(output["output"]).lstrip().partition("\n")
    if output["returncode"] == 0 and first.strip() == SUBMIT:
        extra = {"exit_status": "Submitted", "submission": submission}
        raise Submitted({"role": "exit", "content": submission, "extra": extra})
