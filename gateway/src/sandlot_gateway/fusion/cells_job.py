"""Runs the cells of a request to `/run_jupyter` in one fresh Python context, by a single command of one sandbox."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal

from pydantic import Field
from sandlot_contract.verdicts import CommandVerdict

from sandlot_gateway.python_context.program import driver, request_line

from .cells import Cells
from .languages import TOOLCHAINS
from .sandbox import BadInput, Finished, SandboxClient
from .wire import FIRST_ERROR, MOST_SECONDS, RunRequest, base64_of, command_result, killed_with_sandbox
from .working import DIRECTORY, STDIN, fetch, program_of, write_all

_LANGUAGE = "python"
_MOST_CELLS = 10_000
_CELL_OUTPUT = 4 << 20  # bytes
_OUTPUT = 24 << 20  # bytes of all cells; those that find less room than one may need do not run
# Python and the program that reports its end are killed one after the other: what could still be reported is chance.
_KILLED: dict[str, str] = {
    CommandVerdict.OOM: "the cells reached their memory limit",
    CommandVerdict.SIGNALED: "the program that runs the cells was killed",
}


class RunJupyterRequest(RunRequest):
    """The body of `POST /run_jupyter`."""

    cells: Annotated[list[str], FIRST_ERROR] = Field(max_length=_MOST_CELLS)
    cell_timeout: float = Field(0.0, ge=0, le=MOST_SECONDS)  # 0: only the limit of all cells
    total_timeout: float = Field(45.0, ge=0, le=MOST_SECONDS)
    kernel: Literal["python3"] = "python3"


class CellsJob:
    """A request to `/run_jupyter`."""

    def __init__(self, request: RunJupyterRequest) -> None:
        self._request = request
        self.language: str = _LANGUAGE
        self.granted = request.total_timeout

    def longest(self) -> float:
        return self.granted

    async def run(
        self, client: SandboxClient, *, programs: dict[str, str | None], place: str, sandbox: str
    ) -> dict[str, Any]:
        request = self._request
        program = await program_of(TOOLCHAINS[_LANGUAGE], client, programs, language=_LANGUAGE, place=place)
        await write_all(client.write, request.contents())
        await client.write(STDIN, _input(request))
        context = f"exec {program} -c {shlex.quote(driver())} {_OUTPUT} < {STDIN}"
        finished = await client.run(
            f"mkdir -p {DIRECTORY} && cd {DIRECTORY} && {context}",
            cwd="/",
            timeout=request.total_timeout,
            memory=request.memory,
            output_limit=_OUTPUT,
        )
        cells = Cells(len(request.cells), timeout=request.cell_timeout)
        await cells.feed(finished.stdout)
        if (why := _KILLED.get(finished.verdict)) is not None:
            cells.killed(why)
        if not cells.ready and finished.verdict == CommandVerdict.EXITED:
            why = finished.stderr.decode("utf-8", "replace").strip()[-300:]
            raise BadInput(
                f"kernel 'python3' needs Python 3.8 or later, and {program} in {place} failed: {why}"
            )
        fetched = await fetch(request.fetch_files, client)
        return _answer(sandbox=sandbox, finished=finished, cells=cells, fetched=fetched)

    def sandbox_error(self, message: str, *, sandbox: str | None) -> dict[str, Any]:
        return {
            "status": "SandboxError",
            "message": message,
            "driver": None,
            "cells": [],
            "executor_pod_name": sandbox,
            "files": {},
        }

    def ended_by_code(self, verdict: str, *, sandbox: str) -> dict[str, Any]:
        killed = killed_with_sandbox(verdict)
        return _answer(sandbox=sandbox, finished=killed, cells=Cells(0, timeout=0.0), fetched={})


def _input(request: RunJupyterRequest) -> bytes:
    """Return the requests of a whole context."""
    timeout = {"timeout": request.cell_timeout} if request.cell_timeout else {}
    lines = [
        request_line(type="run", id=str(number), code=code, limit=_CELL_OUTPUT, **timeout)
        for number, code in enumerate(request.cells)
    ]
    return b"".join([*lines, request_line(type="end", id="end")])


def _answer(*, sandbox: str, finished: Finished, cells: Cells, fetched: dict[str, bytes]) -> dict[str, Any]:
    driver = command_result(finished) | {"stdout": ""}
    succeeded = finished.succeeded and cells.complete
    if finished.succeeded and not succeeded:
        if cells.timed_out:
            driver |= {"status": "TimeLimitExceeded", "return_code": None}
        else:
            driver["return_code"] = 1
        driver["stderr"] += f"sandlot: not all cells ran: {cells.stopped or 'the context ended'}"
    return {
        "status": "Success" if succeeded else "Failed",
        "message": "",
        "driver": driver,
        "cells": cells.answers(),
        "executor_pod_name": sandbox,
        "files": base64_of(fetched),
    }
