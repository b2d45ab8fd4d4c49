"""Runs one request's code in one sandbox: writes its files, compiles, runs and reads the files to fetch."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
import shlex
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from .languages import TOOLCHAINS, Toolchain, class_of, object_of, source
from .sandbox import BadInput, Finished, SandboxClient
from .wire import RunCodeRequest

_DIRECTORY = "/tmp/sandbox-fusion/work"
_STDIN = "/tmp/sandbox-fusion/stdin"  # not in the directory that the code sees as its own
_MOST_FETCHED = 48 << 20  # bytes of all files of an answer
_PROBE_TIMEOUT = 10.0


@dataclass(slots=True)
class Outcome:
    """What the commands of a request did, and the files that it asked for."""

    compiled: Finished | None = None
    run: Finished | None = None
    files: dict[str, bytes] = field(default_factory=dict)


def toolchain_of(language: str) -> Toolchain:
    """Return how a language runs. Raises BadInput if it cannot."""
    found = TOOLCHAINS.get(language)
    if found is None:
        raise BadInput(f"language {language!r} is not supported: use another one")
    return found


async def execute(
    request: RunCodeRequest, client: SandboxClient, *, programs: dict[str, str | None], place: str
) -> Outcome:
    """Run the request in a clean sandbox. Raises Lost, BadInput.

    `programs` are those that were looked for in this sandbox, `place` says what it was made of.
    """
    toolchain = toolchain_of(request.language)
    words = {"program": await _program(toolchain, client, programs, language=request.language, place=place)}
    random = f"tmp{secrets.token_hex(4)}"
    name = toolchain.name.replace("{random}", random).replace("{class}", class_of(request.code))
    words["file"] = shlex.quote(f"{_DIRECTORY}/{name}")
    words["args"] = shlex.join(request.args)
    if request.language == "scala":
        words["object"] = _scala_object(request.code)
    await _all(client.write(_path(path), content) for path, content in request.contents().items())
    contents = {f"{_DIRECTORY}/{name}": _encoded(source(request.language, request.code), "code")}
    if request.stdin:
        contents[_STDIN] = _encoded(request.stdin, "stdin")
    await _all(client.write(path, content) for path, content in contents.items())
    outcome = Outcome()
    if toolchain.compile is not None:
        outcome.compiled = await client.run(
            _command(toolchain.compile, words),
            cwd=_DIRECTORY,
            timeout=request.compile_timeout,
            memory=request.memory,
        )
    if outcome.compiled is None or outcome.compiled.succeeded:
        command = _command(toolchain.run, words)
        outcome.run = await client.run(
            f"{command} < {_STDIN}" if request.stdin else command,
            cwd=_DIRECTORY,
            timeout=request.run_timeout,
            memory=request.memory,
        )
    await _fetch(request.fetch_files, client, outcome)
    return outcome


async def _program(
    toolchain: Toolchain,
    client: SandboxClient,
    programs: dict[str, str | None],
    *,
    language: str,
    place: str,
) -> str:
    """Return the path of the toolchain's program, looked for before any code ran that could hide it."""
    for wanted in ((name,) for name in toolchain.also):
        if await _found(wanted, client, programs) is None:
            raise _missing(wanted, language=language, place=place)
    path = await _found(toolchain.programs, client, programs)
    if path is None:
        raise _missing(toolchain.programs, language=language, place=place)
    return shlex.quote(path)


async def _found(
    wanted: tuple[str, ...], client: SandboxClient, programs: dict[str, str | None]
) -> str | None:
    key = wanted[0]
    if key not in programs:
        look = " || ".join(f"command -v {name}" for name in wanted)
        done = await client.run(look, cwd="/", timeout=_PROBE_TIMEOUT, memory=None)
        programs[key] = done.stdout.decode("utf-8", "replace").strip() if done.succeeded else None
    return programs[key]


def _missing(wanted: tuple[str, ...], *, language: str, place: str) -> BadInput:
    names = " or ".join(repr(name) for name in wanted)
    return BadInput(
        f"language {language!r} needs the program {names}, which {place} lacks: use another image for it (--fusion)"
    )


def _scala_object(code: str) -> str:
    found = object_of(code)
    if found is None:
        raise BadInput("Object name not found.")
    return found


def _command(template: str, words: dict[str, str]) -> str:
    """Return the shell command; `exec`, so that a signal ends the command itself and not a shell that hides it."""
    command = template
    for name, value in words.items():
        command = command.replace(f"{{{name}}}", value)
    return command if "&&" in template else f"exec {command}"


async def _all(writes: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, also after a failure: a late one would reach the sandbox's next request."""
    for error in await asyncio.gather(*writes, return_exceptions=True):
        if error is not None:
            raise error


def _path(name: str) -> str:
    """Return where a file of the request is: relative to the directory in which its code runs."""
    return posixpath.join(_DIRECTORY, name)


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{name}: not valid Unicode, since it has a lone surrogate: remove it") from error


async def _fetch(names: list[str], client: SandboxClient, outcome: Outcome) -> None:
    total = 0
    for name in dict.fromkeys(names):
        content = await client.read(_path(name))
        if content is None:
            continue
        total += len(content)
        if total > _MOST_FETCHED:
            raise BadInput(
                f"fetch_files: together more than {_MOST_FETCHED} bytes: fetch fewer or smaller files"
            )
        outcome.files[name] = content
