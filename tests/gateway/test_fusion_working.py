"""A request's files are written a few at a time, and a program or JAR is only missing if nothing has it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sandlot_gateway.fusion.babel import configuration
from sandlot_gateway.fusion.languages import TOOLCHAINS
from sandlot_gateway.fusion.sandbox import BadInput, Finished, Lost, SandboxClient
from sandlot_gateway.fusion.working import DIRECTORY, need_jars, program_of, top_level, write_all


async def test_few_files_are_written_at_a_time() -> None:
    begun: list[str] = []
    enough = asyncio.Event()
    gate = asyncio.Event()

    async def write(path: str, _content: bytes) -> None:
        begun.append(path)
        if len(begun) == 8:
            enough.set()
        await gate.wait()
        raise Lost("the sandbox has ended")

    writing = asyncio.create_task(write_all(write, {str(number): b"" for number in range(100)}))
    await enough.wait()
    gate.set()
    with pytest.raises(Lost):
        await writing
    assert len(begun) == 8


class _Sandbox:
    """Answers commands with ends that a busy machine or an image causes."""

    def __init__(self, *ends: Finished) -> None:
        self._ends = list(ends)

    async def run(self, _command: str, **_options: Any) -> Finished:
        return self._ends.pop(0)


def _ended(verdict: str, exit_code: int | None, stdout: bytes = b"") -> Finished:
    return Finished(
        verdict=verdict, exit_code=exit_code, signal=None, seconds=10.0, stdout=stdout, stderr=b""
    )


async def test_a_slow_look_for_a_program_does_not_say_that_it_is_missing() -> None:
    ends = (_ended("timeout", None), _ended("exited", 0, b"/bin/bash\n"), _ended("exited", 127))
    client = cast(SandboxClient, _Sandbox(*ends))
    programs: dict[str, str | None] = {}
    where = {"language": "bash", "place": "the image 'host'"}
    with pytest.raises(Lost) as lost:
        await program_of(TOOLCHAINS["bash"], client, programs, **where)
    assert (lost.value.ran, programs) == (False, {})
    assert await program_of(TOOLCHAINS["bash"], client, programs, **where) == "/bin/bash"
    with pytest.raises(BadInput):
        await program_of(TOOLCHAINS["bash"], client, {}, **where)


@pytest.mark.parametrize(
    ("name", "enough"),
    [
        ("junit-platform-console-standalone-1.10.3.jar", True),
        ("./junit-platform-console.jar", True),
        (f"{DIRECTORY}/junit-platform-console.jar", True),
        ("hamcrest-3.0.jar", False),
        ("lib/junit-platform-console.jar", False),
        ("../junit-platform-console.jar", False),
        ("junit-platform-console.jar/x", False),
    ],
)
async def test_only_the_launcher_beside_the_code_replaces_the_images(name: str, enough: bool) -> None:
    pattern = TOOLCHAINS["junit"].jars
    assert pattern is not None
    client = cast(SandboxClient, _Sandbox(_ended("exited", 2)))
    where = {"language": "junit", "place": "the image 'host'"}
    if enough:
        await need_jars(pattern, {name: b""}, client, {}, **where)
        return
    with pytest.raises(BadInput, match=r"needs a JAR /usr/share/java/junit-platform-console\*\.jar"):
        await need_jars(pattern, {name: b""}, client, {}, **where)


BOTH = {"package.json", "babel.config.cjs"}


@pytest.mark.parametrize(
    ("files", "added"),
    [
        ({}, BOTH),
        ({"package.json": b'{"type": "module"}'}, {"babel.config.cjs"}),
        ({"package.json": b'{"babel": {}}'}, set()),
        ({"package.json": b'{"x": {"babel": {}}}'}, {"babel.config.cjs"}),
        ({"package.json": b"no JSON \xff"}, {"babel.config.cjs"}),
        ({"package.json": b"[" * 100_000}, {"babel.config.cjs"}),
        ({"babel.config.json": b"{}"}, {"package.json"}),
        ({"babel.config.cjs": b""}, {"package.json"}),
        ({"./babel.config.js": b""}, {"package.json"}),
        ({".babelrc": b"{}"}, {"package.json"}),
        ({".babelrc.mjs": b""}, {"package.json"}),
        ({"lib/babel.config.js": b"", "lib/package.json": b"{}"}, BOTH),
    ],
    ids=range(12),
)
def test_babel_gets_no_second_configuration(files: dict[str, bytes], added: set[str]) -> None:
    assert configuration(top_level(files)).keys() == added
