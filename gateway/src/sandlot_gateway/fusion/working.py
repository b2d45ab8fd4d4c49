"""What requests of all kinds do in their sandbox: find programs, write files, read the files to fetch."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase

from sandlot_contract.verdicts import CommandVerdict

from .languages import Toolchain
from .sandbox import BadInput, Lost, SandboxClient

DIRECTORY = "/tmp/sandbox-fusion/work"
STDIN = "/tmp/sandbox-fusion/stdin"  # not in the directory that the code sees as its own
_MOST_FETCHED = 48 << 20  # bytes of all files of an answer
_PROBE_TIMEOUT = 10.0
_WRITES = 8  # at the same time; each has a connection to the sandbox


async def program_of(
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


async def need_jars(
    pattern: str,
    given: Mapping[str, bytes],
    client: SandboxClient,
    programs: dict[str, str | None],
    *,
    language: str,
    place: str,
) -> None:
    """Raise BadInput if neither the image has a file of the pattern, nor the request one of such a name beside its code."""
    name = posixpath.basename(pattern)
    if any(fnmatchcase(each, name) for each in top_level(given)):
        return
    if await _looked_up(pattern, f"ls {pattern}", client, programs) is None:
        raise BadInput(
            f"language {language!r} needs a JAR {pattern}, which {place} lacks: use another image for it (--fusion),"
            f" or send {name} in `files`, in no directory"
        )


async def _found(
    wanted: tuple[str, ...], client: SandboxClient, programs: dict[str, str | None]
) -> str | None:
    look = " || ".join(f"command -v {name}" for name in wanted)
    return await _looked_up(wanted[0], look, client, programs)


async def _looked_up(
    key: str, look: str, client: SandboxClient, programs: dict[str, str | None]
) -> str | None:
    if key not in programs:
        done = await client.run(look, cwd="/", timeout=_PROBE_TIMEOUT, memory=None)
        if done.verdict != CommandVerdict.EXITED:  # of a busy machine, which says nothing about the image
            raise Lost(f"looking for {key!r} did not end by itself: {done.verdict}", ran=False)
        programs[key] = done.stdout.decode("utf-8", "replace").strip() if done.succeeded else None
    return programs[key]


def _missing(wanted: tuple[str, ...], *, language: str, place: str) -> BadInput:
    names = " or ".join(repr(name) for name in wanted)
    return BadInput(
        f"language {language!r} needs the program {names}, which {place} lacks: use another image for it (--fusion)"
    )


async def write_all(write: Callable[[str, bytes], Awaitable[None]], contents: Mapping[str, bytes]) -> None:
    """Write files, a few at a time; names are relative to the directory in which the code runs."""
    pending = deque(contents.items())

    async def write_some() -> None:
        try:
            while pending:
                name, content = pending.popleft()
                await write(_path_of(name), content)
        finally:
            pending.clear()  # after a failure no further one begins

    # Wait for all, also after a failure: a late one would reach the sandbox's next request.
    for error in await asyncio.gather(*(write_some() for _ in range(_WRITES)), return_exceptions=True):
        if error is not None:
            raise error


def top_level(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return those of the request's files that are in the code's directory itself, by their names there."""
    paths = {posixpath.normpath(_path_of(name)): content for name, content in files.items()}
    return {
        posixpath.basename(path): content
        for path, content in paths.items()
        if posixpath.dirname(path) == DIRECTORY
    }


def _path_of(name: str) -> str:
    return posixpath.join(DIRECTORY, name)


async def fetch(names: list[str], client: SandboxClient) -> dict[str, bytes]:
    """Return the content of those names that are regular files."""
    found: dict[str, bytes] = {}
    total = 0
    for name in dict.fromkeys(names):
        content = await client.read(_path_of(name))
        if content is None:
            continue
        total += len(content)
        if total > _MOST_FETCHED:
            raise BadInput(
                f"fetch_files: together more than {_MOST_FETCHED} bytes: fetch fewer or smaller files"
            )
        found[name] = content
    return found
