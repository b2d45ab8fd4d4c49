"""Pydantic AI's own suite for workspaces, and what it leaves open; pytest of its environment runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import sandlot
from ended_box import EndedBox
from lost import kill_commands, kill_sidecar
from pydantic_ai.workspaces import (
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from sandlot.integrations.pydantic_ai import SandlotWorkspaceBackend

IMAGE = "host"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def backend() -> AsyncIterator[SandlotWorkspaceBackend]:
    async with SandlotWorkspaceBackend(IMAGE, memory="256MiB") as made:
        yield made


class TestSandlotWorkspaceBackend(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[SandlotWorkspaceBackend]:
        async with SandlotWorkspaceBackend(IMAGE) as made:
            yield made

    @pytest.fixture
    async def fresh_backend(self) -> AsyncIterator[Callable[[], WorkspaceBackend]]:
        made: list[SandlotWorkspaceBackend] = []

        def make() -> SandlotWorkspaceBackend:
            made.append(SandlotWorkspaceBackend(IMAGE))
            return made[-1]

        yield make
        for each in made:
            await each.delete()

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: SandlotWorkspaceBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[SandlotWorkspaceBackend], Awaitable[None]]:
        return SandlotWorkspaceBackend.delete


async def test_ends_of_the_code_are_results(backend: SandlotWorkspaceBackend) -> None:
    assert (await backend.run(["python3", "-c", "bytearray(1 << 30)"])).exit_code == 137
    with pytest.raises(WorkspaceOutputLimitError, match="write them to a file"):
        await backend.run(["head", "-c", "40000000", "/dev/zero"])


async def test_a_link_does_not_hide_the_working_directory(backend: SandlotWorkspaceBackend) -> None:
    await backend.run(["ln", "-s", "/", "/tmp/root"])
    with pytest.raises(ValueError, match="the working directory or above"):
        await backend.remove("/tmp/root/workspace")
    await backend.remove("/tmp/root")
    assert await backend.exists("/workspace")


@pytest.mark.parametrize("of_sandbox", [False, True], ids=["command", "sandbox"])
async def test_a_loss_is_unavailable(backend: SandlotWorkspaceBackend, of_sandbox: bool) -> None:
    running = asyncio.create_task(backend.run("echo > begun; exec -a lost-pydantic sleep 600", shell=True))
    while not await backend.exists("/workspace/begun"):
        pass
    assert backend.ref is not None
    if of_sandbox:
        kill_sidecar("lost-pydantic")
    else:
        kill_commands(backend.ref.id)
    with pytest.raises(WorkspaceUnavailableError) as caught:
        await running
    assert isinstance(caught.value.__cause__, sandlot.SandboxLost)
    assert caught.value.__cause__.infrastructure


@pytest.mark.parametrize("verdict", ["exited", "oom", "init_killed", "deleted", "node_lost"])
async def test_only_code_that_ends_its_sandbox_has_a_result(
    backend: SandlotWorkspaceBackend, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    await backend.working_dir()
    monkeypatch.setattr(backend, "_box", EndedBox(verdict))
    if verdict in ("deleted", "node_lost"):
        with pytest.raises(WorkspaceUnavailableError):
            await backend.run(["true"])
        with pytest.raises(WorkspaceUnavailableError):
            await backend.read_bytes("/workspace/a")
    else:
        ended = await backend.run(["true"])
        assert (ended.exit_code, verdict in ended.stderr) == (137, True)
        with pytest.raises(OSError, match=verdict):
            await backend.read_bytes("/workspace/a")
        assert not await backend.exists("/workspace/a")


async def test_a_cancelled_first_use_leaves_no_sandbox() -> None:
    backend = SandlotWorkspaceBackend(IMAGE, labels=["cancelled"])
    first = asyncio.create_task(backend.working_dir())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    await backend.delete()
    assert await sandlot.AsyncSandbox.list(labels=["cancelled"]) == []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"ref": WorkspaceRef(provider="e2b", id="x")}, "ref: "), ({"working_dir": "x"}, "working_dir: ")],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SandlotWorkspaceBackend(IMAGE, **arguments)


def test_one_backend_serves_several_event_loops() -> None:
    backend = SandlotWorkspaceBackend(IMAGE)
    asyncio.run(backend.write_bytes("/workspace/a", b"kept"))
    assert asyncio.run(backend.read_bytes("/workspace/a")) == b"kept"
    asyncio.run(backend.delete())
