# This file is auto-generated from sdk/src/sandlot/_async/replay.py by tools/async_to_sync.py: do not change it.
"""Replays the stages of a Dockerfile in sandboxes, and deletes these afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sandlot._dockerfile import mounts
from sandlot._dockerfile.context import Context, SourceMissing
from sandlot._dockerfile.copy_plan import Order, order, owner
from sandlot._dockerfile.source import Instruction
from sandlot._dockerfile.stages import Dockerfile, Stage, origins
from sandlot._dockerfile.state import State
from sandlot._dockerfile.words import BadWord
from sandlot._sync.client import CLEANUP, Client
from sandlot._sync.copies import Copier
from sandlot._sync.sandbox import Sandbox
from sandlot._tasks_sync import now
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


class Replay:
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
        self._boxes: list[Sandbox] = []
        self._images: dict[str, Sandbox] = {}
        self._checkpoints: list[str] = []
        self._stages: dict[int, tuple[Sandbox, State]] = {}

    def run(self, needed: list[Stage]) -> tuple[Sandbox, State]:
        """Replay stages in their order; return the sandbox and the state of the last. Raises BuildFailed and others."""
        uses: Counter[int | None] = Counter()
        for stage in needed:
            names = [name for one in stage.instructions for name in origins(one)]
            uses.update(
                [stage.base_stage, *(self._dockerfile.stage_of(name, before=stage.index) for name in names)]
            )
        for stage in needed:
            only = uses[stage.base_stage] == 1
            box, state = self._guarded(stage.start, lambda: self._begin(stage, only=only))  # noqa: B023
            self._stages[stage.index] = (box, state)
            for instruction in stage.instructions:
                self._guarded(instruction, lambda: self._replay(instruction, stage, box, state))  # noqa: B023
        return self._stages[needed[-1].index]

    def close(self) -> None:
        """Delete the sandboxes and the checkpoints between stages; failures are ignored."""
        client: Client = self._create["client"]
        paths = [f"/sandbox/{box.id}" for box in self._boxes]
        paths += [f"/sandbox/checkpoints/{checkpoint_id}" for checkpoint_id in self._checkpoints]
        for path in paths:
            try:
                client.call("DELETE", path, timeout=CLEANUP, patience=CLEANUP)
            except SandlotError:
                continue

    def _begin(self, stage: Stage, *, only: bool) -> tuple[Sandbox, State]:
        """Return the sandbox and state of a stage's base. `only`: nothing else needs the base."""
        if stage.base_stage is None:
            box = self._sandbox(image=stage.base)
            state = State(self._dockerfile, self._args)
            self._look(box, state)
            return box, state
        base = self._dockerfile.stages[stage.base_stage]
        if any(one.keyword == "ONBUILD" for one in base.instructions):
            raise BadWord("ONBUILD of its base cannot be replayed: write those instructions in this stage")
        box, before = self._stages[stage.base_stage]
        state = before.continued()
        if only:
            return box, state
        kept = box.checkpoint(wait=self._left())
        self._checkpoints.append(kept.id)
        return self._sandbox(checkpoint=kept), state

    def _sandbox(self, *, image: str | None = None, checkpoint: CheckpointInfo | None = None) -> Sandbox:
        create = {name: value for name, value in self._create.items() if checkpoint is None or name != "disk"}
        left = self._left()
        box = Sandbox.create(image, checkpoint=checkpoint, timeout=left + SLACK, wait=left, **create)
        self._boxes.append(box)
        return box

    def _look(self, box: Sandbox, state: State) -> None:
        """Read what the image sets. Raises BadWord if it is of another platform."""
        seen = box.exec(["/bin/sh", "-c", LOOK], timeout=60)
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

    def _replay(self, instruction: Instruction, stage: Stage, box: Sandbox, state: State) -> None:
        if self._on_output is not None:
            self._on_output(f"{self._dockerfile.file}:{instruction.line}: {instruction.short}\n")
        if state.apply(instruction):
            return
        if instruction.keyword == "RUN":
            self._run(instruction, stage, box, state)
        elif instruction.keyword == "WORKDIR":
            state.workdir = state.path(state.expand(instruction.rest))
            if not box.files.exists(state.workdir):
                user, group = owner(state.user or state.base_user)
                box.files.mkdir(state.workdir, owner=user, group=group)
        else:
            self._copy(order(instruction, state), stage, box)

    def _copy(self, wanted: Order, stage: Stage, box: Sandbox) -> None:
        copier = Copier(box, left=self._time)
        if not wanted.origin:
            copier.from_context(wanted, self._context)
            return
        index = self._dockerfile.stage_of(wanted.origin, before=stage.index)
        if index is not None:
            copier.from_sandbox(wanted, self._stages[index][0])
            return
        if wanted.origin not in self._images:
            self._images[wanted.origin] = self._sandbox(image=wanted.origin)
        copier.from_sandbox(wanted, self._images[wanted.origin])

    def _run(self, instruction: Instruction, stage: Stage, box: Sandbox, state: State) -> None:
        mounted = [self._mount(mount, stage, box, state) for mount in mounts.of(instruction)]
        tail, end = "", None
        stream = box.exec(
            state.run_argv(instruction),
            env=state.run_env(),
            cwd=state.workdir,
            user=state.user,
            timeout=self._left(),
            stream=True,
        )
        with stream:
            for event in stream:
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
                self._unmount(path, there, box)

    def _mount(
        self, mount: mounts.Mount, stage: Stage, box: Sandbox, state: State
    ) -> tuple[str, FileInfo | None]:
        """Make what a mount shows; return its path and what was there before."""
        path = state.path(state.expand(mount.target))
        there = box.files.stat(path) if box.files.exists(path) else None
        if mount.kind != "bind":
            if there is None:
                box.files.mkdir(path, mode=mount.mode, owner=mount.uid, group=mount.gid)
                return path, None
            return "", there  # its files stay, as those of any directory
        if there is not None and (there.type != "dir" or box.files.list(path)):
            raise BadWord(f"{mount.target} exists: bind to a path that does not, or to an empty directory")
        source = state.expand(mount.source)
        wanted = Order((source,), path, into=False, origin=mount.origin, written=(mount.source,))
        self._copy(wanted, stage, box)
        return path, there

    def _unmount(self, path: str, there: FileInfo | None, box: Sandbox) -> None:
        """Remove what a mount showed, since it is no part of the image."""
        if there is None:
            box.files.remove(path, recursive=True, missing_ok=True)
            return
        for info in box.files.list(path):
            box.files.remove(f"{path}/{info.name}", recursive=True, missing_ok=True)

    def _guarded(self, instruction: Instruction, work: Callable[[], Result]) -> Result:
        """Do the work of an instruction, and raise what it raises with the instruction's place."""
        try:
            self._time()
            return work()
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
