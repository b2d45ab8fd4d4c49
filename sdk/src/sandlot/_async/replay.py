"""Replays the stages of a Dockerfile in sandboxes, and deletes these afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from sandlot._async.client import CLEANUP, AsyncClient
from sandlot._async.copies import AsyncCopier
from sandlot._async.sandbox import AsyncSandbox
from sandlot._dockerfile import mounts
from sandlot._dockerfile.context import Context, SourceMissing
from sandlot._dockerfile.copy_plan import Order, order, owner
from sandlot._dockerfile.source import Instruction
from sandlot._dockerfile.stages import Dockerfile, Stage, origins
from sandlot._dockerfile.state import State
from sandlot._dockerfile.words import BadWord
from sandlot._tasks_async import now
from sandlot.errors import (
    BadRequest,
    BuildFailed,
    ConnectionFailed,
    DiskFull,
    FileError,
    SandboxLost,
    SandlotError,
)
from sandlot.models import CheckpointInfo, Exit, FileInfo, Verdict

Result = TypeVar("Result")

SLACK = 120.0  # seconds that a sandbox lives longer than its build may take
TAIL = 8192  # characters of a failed RUN's output that its error keeps
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# An image may lack any of these programs.
LOOK = 'echo "$(uname -m)"; pwd; echo "$(id -u):$(id -g)"; cat /proc/self/environ'
# The owner's delete, and a limit of the caller, are no failure of the code.
BY_CODE = frozenset(["oom", "init_killed", "deadline", "exited"])


class _TooLate(Exception):
    """Raised when the build's time is over."""


class AsyncReplay:
    """One attempt at a build. `create` has the arguments of its sandboxes; it must be closed."""

    def __init__(
        self,
        dockerfile: Dockerfile,
        context: Context,
        *,
        args: Mapping[str, str],
        platform: str,
        deadline: float,
        create: Mapping[str, Any],
        on_output: Callable[[str], None] | None,
    ) -> None:
        self._dockerfile = dockerfile
        self._context = context
        self._args = args
        self._platform = platform
        self._deadline = deadline
        self._create = create
        self._on_output = on_output
        self._boxes: list[AsyncSandbox] = []
        self._images: dict[str, AsyncSandbox] = {}
        self._checkpoints: list[str] = []
        self._stages: dict[int, tuple[AsyncSandbox, State]] = {}

    async def run(self, needed: list[Stage]) -> tuple[AsyncSandbox, State]:
        """Replay stages in their order; return the sandbox and the state of the last. Raises BuildFailed and others."""
        uses: Counter[int | None] = Counter()
        for stage in needed:
            names = [name for one in stage.instructions for name in origins(one)]
            uses.update(
                [stage.base_stage, *(self._dockerfile.stage_of(name, before=stage.index) for name in names)]
            )
        for stage in needed:
            only = uses[stage.base_stage] == 1
            box, state = await self._guarded(stage.start, lambda: self._begin(stage, only=only))  # noqa: B023
            self._stages[stage.index] = (box, state)
            for instruction in stage.instructions:
                await self._guarded(instruction, lambda: self._replay(instruction, stage, box, state))  # noqa: B023
        return self._stages[needed[-1].index]

    async def aclose(self) -> None:
        """Delete the sandboxes and the checkpoints between stages; failures are ignored."""
        client: AsyncClient = self._create["client"]
        paths = [f"/sandbox/{box.id}" for box in self._boxes]
        paths += [f"/sandbox/checkpoints/{checkpoint_id}" for checkpoint_id in self._checkpoints]
        for path in paths:
            try:
                await client.call("DELETE", path, timeout=CLEANUP, patience=CLEANUP)
            except SandlotError:
                continue

    async def _begin(self, stage: Stage, *, only: bool) -> tuple[AsyncSandbox, State]:
        """Return the sandbox and state of a stage's base. `only`: nothing else needs the base."""
        if stage.base_stage is None:
            box = await self._sandbox(image=stage.base)
            state = State(self._dockerfile, self._args)
            await self._look(box, state)
            return box, state
        base = self._dockerfile.stages[stage.base_stage]
        if any(one.keyword == "ONBUILD" for one in base.instructions):
            raise BadWord("ONBUILD of its base cannot be replayed: write those instructions in this stage")
        box, before = self._stages[stage.base_stage]
        state = before.continued()
        if only:
            return box, state
        kept = await box.checkpoint(wait=self._left())
        self._checkpoints.append(kept.id)
        return await self._sandbox(checkpoint=kept), state

    async def _sandbox(
        self, *, image: str | None = None, checkpoint: CheckpointInfo | None = None
    ) -> AsyncSandbox:
        create = {name: value for name, value in self._create.items() if checkpoint is None or name != "disk"}
        left = self._left()
        box = await AsyncSandbox.create(
            image, checkpoint=checkpoint, timeout=left + SLACK, wait=left, **create
        )
        self._boxes.append(box)
        return box

    async def _look(self, box: AsyncSandbox, state: State) -> None:
        """Read what the image sets. Raises BadWord if it is of another platform."""
        seen = await box.exec(["/bin/sh", "-c", LOOK], timeout=60)
        if seen.stdout.count("\n") < 3:
            return  # an image without a shell; its RUN says so
        machine, workdir, user, environ = seen.stdout.split("\n", 3)
        arch = self._platform.split("/")[1:2]
        if machine in MACHINES and arch != [MACHINES[machine]]:
            raise BadWord(
                f"the server is {MACHINES[machine]}, the build is for {self._platform}: pass that platform"
            )
        pairs = (item.partition("=") for item in environ.split("\0") if item)
        state.of_base({name: value for name, _, value in pairs}, workdir, user)

    async def _replay(self, instruction: Instruction, stage: Stage, box: AsyncSandbox, state: State) -> None:
        if self._on_output is not None:
            self._on_output(f"{self._dockerfile.file}:{instruction.line}: {instruction.short}\n")
        if state.apply(instruction):
            return
        if instruction.keyword == "RUN":
            await self._run(instruction, stage, box, state)
        elif instruction.keyword == "WORKDIR":
            state.workdir = state.path(state.expand(instruction.rest))
            if not await box.files.exists(state.workdir):
                user, group = owner(state.user or state.base_user)
                await box.files.mkdir(state.workdir, owner=user, group=group)
        else:
            await self._copy(order(instruction, state), stage, box)

    async def _copy(self, wanted: Order, stage: Stage, box: AsyncSandbox) -> None:
        copier = AsyncCopier(box, left=self._time)
        if not wanted.origin:
            await copier.from_context(wanted, self._context)
            return
        index = self._dockerfile.stage_of(wanted.origin, before=stage.index)
        if index is not None:
            await copier.from_sandbox(wanted, self._stages[index][0])
            return
        if wanted.origin not in self._images:
            self._images[wanted.origin] = await self._sandbox(image=wanted.origin)
        await copier.from_sandbox(wanted, self._images[wanted.origin])

    async def _run(self, instruction: Instruction, stage: Stage, box: AsyncSandbox, state: State) -> None:
        mounted = [await self._mount(mount, stage, box, state) for mount in mounts.of(instruction)]
        tail, end = "", None
        stream = await box.exec(
            state.run_argv(instruction),
            env=state.run_env(),
            cwd=state.workdir,
            user=state.user,
            timeout=self._left(),
            stream=True,
        )
        async with stream:
            async for event in stream:
                if isinstance(event, Exit):
                    end = event
                    continue
                tail = (tail + event.text)[-TAIL:]
                if self._on_output is not None:
                    self._on_output(event.text)
        if end is None or end.verdict == Verdict.CLIENT_GONE:
            raise ConnectionFailed("the connection to a RUN was lost: repeat the build", sent=True)
        if not end.ok:
            cause = end.message or (
                f"exit code {end.exit_code}" if end.verdict == "exited" else str(end.verdict)
            )
            raise self._failed(
                cause, instruction, exit_code=end.exit_code, verdict=str(end.verdict), output=tail
            )
        for path, there in mounted:
            if path:
                await self._unmount(path, there, box)

    async def _mount(
        self, mount: mounts.Mount, stage: Stage, box: AsyncSandbox, state: State
    ) -> tuple[str, FileInfo | None]:
        """Make what a mount shows; return its path and what was there before."""
        path = state.path(state.expand(mount.target))
        there = await box.files.stat(path) if await box.files.exists(path) else None
        if mount.kind != "bind":
            if there is None:
                await box.files.mkdir(path, mode=mount.mode, owner=mount.uid, group=mount.gid)
                return path, None
            return "", there  # its files stay, as those of any directory
        if there is not None and (there.type != "dir" or await box.files.list(path)):
            raise BadWord(f"{mount.target} exists: bind to a path that does not, or to an empty directory")
        source = state.expand(mount.source)
        wanted = Order((source,), path, into=False, origin=mount.origin, written=(mount.source,))
        await self._copy(wanted, stage, box)
        return path, there

    async def _unmount(self, path: str, there: FileInfo | None, box: AsyncSandbox) -> None:
        """Remove what a mount showed, since it is no part of the image."""
        if there is None:
            await box.files.remove(path, recursive=True, missing_ok=True)
            return
        for info in await box.files.list(path):
            await box.files.remove(f"{path}/{info.name}", recursive=True, missing_ok=True)

    async def _guarded(self, instruction: Instruction, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do the work of an instruction, and raise what it raises with the instruction's place."""
        try:
            self._time()
            return await work()
        except _TooLate:
            message = "the build took longer than its timeout: raise it"
            raise self._failed(message, instruction, verdict="timeout") from None
        except (BadWord, SourceMissing) as error:
            raise self._dockerfile.error(str(error), instruction) from None
        except FileError as error:
            verdict = "disk_full" if isinstance(error, DiskFull) else "exited"
            raise self._failed(str(error), instruction, verdict=verdict) from error
        except BadRequest as error:  # a user or group that does not exist, or an image that is not allowed
            raise self._failed(str(error), instruction, verdict="start_failed") from error
        except SandboxLost as error:
            if error.verdict not in BY_CODE:
                raise
            raise self._failed(str(error), instruction, verdict=error.verdict) from error

    def _failed(
        self,
        message: str,
        instruction: Instruction,
        *,
        exit_code: int | None = None,
        verdict: str,
        output: str = "",
    ) -> BuildFailed:
        return BuildFailed(
            message,
            file=self._dockerfile.file,
            line=instruction.line,
            instruction=instruction.short,
            exit_code=exit_code,
            verdict=verdict,
            output=output,
        )

    def _time(self) -> float:
        """Return the seconds that are left. Raises _TooLate."""
        left = self._deadline - now()
        if left <= 0:
            raise _TooLate
        return left

    def _left(self) -> float:
        return max(1.0, self._deadline - now())
