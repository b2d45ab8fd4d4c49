"""Requests and answers of SandboxFusion's API, as its server has them."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, field_validator
from sandlot_contract.verdicts import CommandVerdict

from sandlot_gateway.fusion_option import Language

from .sandbox import Finished

MOST_SECONDS = 86400.0
_MOST_OUTPUT = 1 << 20  # bytes of each stream in an answer, as SandboxFusion's server keeps
_MOST_ENTRIES = 1000  # of a list or of `files`
# Without it each wrong element has its own error, and those of one body take gigabytes.
FIRST_ERROR = FailFast()


class RunRequest(BaseModel):
    """The fields of both requests; unknown ones are ignored."""

    model_config = ConfigDict(allow_inf_nan=False)

    memory_limit_MB: int = Field(-1, le=1 << 24)
    files: Annotated[dict[str, str | None], FIRST_ERROR, Field(max_length=_MOST_ENTRIES)] = Field(
        default_factory=dict
    )
    fetch_files: Annotated[list[str], FIRST_ERROR] = Field(default_factory=list, max_length=_MOST_ENTRIES)

    @field_validator("files")
    @classmethod
    def _is_base64(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        for name, content in value.items():
            try:
                base64.b64decode(content or "")
            except (binascii.Error, ValueError) as error:
                raise ValueError(f"{name!r} is not base64: {error}") from None
        return value

    @property
    def memory(self) -> int | None:
        """Bytes; None: the sandbox's."""
        return self.memory_limit_MB << 20 if self.memory_limit_MB > 0 else None

    def contents(self) -> dict[str, bytes]:
        """Return the files to write; as in SandboxFusion, those without content are left out."""
        return {
            name: base64.b64decode(content)
            for name, content in self.files.items()
            if content is not None and "IGNORE_THIS_FILE" not in name
        }


class RunCodeRequest(RunRequest):
    """The body of `POST /run_code`."""

    code: str
    language: Language
    stdin: str | None = None
    compile_timeout: float = Field(10.0, ge=0, le=MOST_SECONDS)
    run_timeout: float = Field(10.0, ge=0, le=MOST_SECONDS)
    # For pytest.
    args: Annotated[list[str], FIRST_ERROR] = Field(default_factory=list, max_length=_MOST_ENTRIES)


def command_result(finished: Finished) -> dict[str, Any]:
    """Return one command's part of an answer. A signal's return code is negative, as a Python parent sees it."""
    timed_out = finished.verdict == CommandVerdict.TIMEOUT
    code = -finished.signal if finished.signal else finished.exit_code
    return {
        "status": "TimeLimitExceeded" if timed_out else "Finished",
        "execution_time": finished.seconds,
        "return_code": None if timed_out else code,
        "stdout": _text(finished.stdout),
        "stderr": _text(finished.stderr),
    }


def run_code_answer(
    *,
    sandbox: str,
    compiled: Finished | None,
    run: Finished | None,
    files: dict[str, bytes],
) -> dict[str, Any]:
    """Return the answer to a request whose commands ended by themselves, by their code or at their time limits."""
    ended = [part for part in (compiled, run) if part is not None]
    return {
        "status": "Success" if all(part.succeeded for part in ended) else "Failed",
        "message": "",
        "compile_result": command_result(compiled) if compiled is not None else None,
        "run_result": command_result(run) if run is not None else None,
        "executor_pod_name": sandbox,
        "files": base64_of(files),
    }


def base64_of(files: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def ended_by_code(verdict: str, *, sandbox: str) -> dict[str, Any]:
    """Return the answer to a request whose code ended its whole sandbox, with all output."""
    return run_code_answer(sandbox=sandbox, compiled=None, run=killed_with_sandbox(verdict), files={})


def killed_with_sandbox(verdict: str) -> Finished:
    text = f"sandlot: the code ended its sandbox: {verdict}".encode()
    return Finished(verdict="signaled", exit_code=137, signal=9, seconds=0.0, stdout=b"", stderr=text)


def sandbox_error(message: str, *, sandbox: str | None) -> dict[str, Any]:
    """Return the answer to a request that no repetition helps."""
    return {
        "status": "SandboxError",
        "message": message,
        "compile_result": None,
        "run_result": None,
        "executor_pod_name": sandbox,
        "files": {},
    }


def _text(output: bytes) -> str:
    return output[:_MOST_OUTPUT].decode("utf-8", "replace")
