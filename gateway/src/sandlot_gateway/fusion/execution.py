"""Runs one request's code in one sandbox: writes its files, compiles, runs and reads the files to fetch."""

from __future__ import annotations

import secrets
import shlex
from typing import Any

from .declared import class_of, object_of
from .languages import TOOLCHAINS, Toolchain, source
from .sandbox import BadInput, Finished, SandboxClient
from .wire import RunCodeRequest, ended_by_code, run_code_answer, sandbox_error
from .working import DIRECTORY, STDIN, fetch, need_jars, program_of, top_level, write_all


class CodeJob:
    """A request to `/run_code`."""

    def __init__(self, request: RunCodeRequest) -> None:
        self._request = request
        self.language: str = request.language
        self.granted = request.compile_timeout + request.run_timeout

    def longest(self) -> float:
        toolchain = _toolchain_of(self.language)
        return self.granted if toolchain.compile is not None else self._request.run_timeout

    async def run(
        self, client: SandboxClient, *, programs: dict[str, str | None], place: str, sandbox: str
    ) -> dict[str, Any]:
        request = self._request
        toolchain = _toolchain_of(request.language)
        given = request.contents()
        words = {
            "program": await program_of(toolchain, client, programs, language=request.language, place=place)
        }
        if toolchain.jars is not None:
            await need_jars(toolchain.jars, given, client, programs, language=request.language, place=place)
        name = toolchain.name.replace("{random}", f"tmp{secrets.token_hex(4)}")
        if "{class}" in name:
            name = name.replace("{class}", class_of(request.code))
        words["file"] = shlex.quote(f"{DIRECTORY}/{name}")
        words["args"] = shlex.join(request.args)
        if request.language == "scala":
            words["object"] = object_of(request.code)
        if toolchain.beside is not None:
            await write_all(client.write, toolchain.beside(top_level(given)))
        await write_all(client.write, given)
        contents: dict[str, bytes] = {}
        if request.code or request.language != "junit":  # whose classes may all be among the files
            contents[f"{DIRECTORY}/{name}"] = source(request.language, request.code).encode()
        if request.stdin:
            contents[STDIN] = request.stdin.encode()
        await write_all(client.write, contents)
        compiled: Finished | None = None
        run: Finished | None = None
        if toolchain.compile is not None:
            compiled = await client.run(
                _command(toolchain.compile, words),
                cwd=DIRECTORY,
                timeout=request.compile_timeout,
                memory=request.memory,
            )
        if compiled is None or compiled.succeeded:
            command = _command(toolchain.run, words)
            run = await client.run(
                f"{command} < {STDIN}" if request.stdin else command,
                cwd=DIRECTORY,
                timeout=request.run_timeout,
                memory=request.memory,
            )
        files = await fetch(request.fetch_files, client)
        return run_code_answer(sandbox=sandbox, compiled=compiled, run=run, files=files)

    def sandbox_error(self, message: str, *, sandbox: str | None) -> dict[str, Any]:
        return sandbox_error(message, sandbox=sandbox)

    def ended_by_code(self, verdict: str, *, sandbox: str) -> dict[str, Any]:
        return ended_by_code(verdict, sandbox=sandbox)


def _toolchain_of(language: str) -> Toolchain:
    found = TOOLCHAINS.get(language)
    if found is None:
        raise BadInput(f"language {language!r} is not supported: use another one")
    return found


def _command(template: str, words: dict[str, str]) -> str:
    """Return the shell command; `exec`, so that a signal ends the command itself and not a shell that hides it."""
    command = template
    for name, value in words.items():
        command = command.replace(f"{{{name}}}", value)
    return command if "&&" in template else f"exec {command}"
