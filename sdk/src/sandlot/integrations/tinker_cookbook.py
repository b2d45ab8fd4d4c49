"""A sandbox of tinker-cookbook: `sandbox_factory` of its harbor recipes takes what `sandbox_factory` returns.

`LossRaisingGroup` keeps its recipe from scoring trajectories whose sandbox was lost.
"""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from tinker_cookbook.exceptions import SandboxError
from tinker_cookbook.sandbox.sandbox_interface import SandboxResult, SandboxTerminatedError

from sandlot._async.client import default_client
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import (
    AuthError,
    BadRequest,
    Busy,
    ConnectionFailed,
    FileError,
    NotFound,
    SandboxLost,
    SandlotError,
    ServerError,
    StartFailed,
    WaitTimeout,
)
from sandlot.integrations._lost_commands import KILLED, EndedByCode, ended_by_code, own_end
from sandlot.integrations._shared_loop import on_shared_loop
from sandlot.models import ExecResult

Result = TypeVar("Result")

NO_EXIT_CODE = -1  # tinker-cookbook's exit code of a command that did not run
OUTPUT_BYTES = 128 * 1024  # of each stream, tinker-cookbook's default
PROBE_SECONDS = 10.0  # within which a sandbox that is there runs `true`, also a busy one


def sandbox_factory(
    image: str | None = None, **create: Any
) -> Callable[[Path, int], Awaitable[SandlotSandbox]]:
    """Return a factory of sandboxes for harbor tasks, of `image` or of the `docker_image` in each task.toml.

    `create` has further arguments of `sandlot.Sandbox.create`.
    """

    async def factory(env_dir: Path, timeout: int) -> SandlotSandbox:
        found = image or await asyncio.to_thread(_image_of, env_dir)
        return await SandlotSandbox.create(found, timeout=timeout, **create)

    return factory


class SandlotSandbox:
    """A sandbox that lives until `cleanup` or for `timeout` seconds. Conforms to SandboxInterface.

    A sandbox that its own code has ended has results: exit code 137, or 1 of files, and the verdict in `stderr`. A loss
    is kept in `lost`, and every later call raises it again, since tinker-cookbook gives a tool's exception to the model.
    """

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box
        self.lost: SandboxError | None = None

    @classmethod
    async def create(cls, image: str | None = None, *, timeout: float = 600, **create: Any) -> SandlotSandbox:
        """Create a sandbox. Raises SandboxError when the server could not start it."""

        async def made() -> AsyncSandbox:
            return await AsyncSandbox.create(image, timeout=timeout, client=await default_client(), **create)

        try:
            return cls(await on_shared_loop(made, discard=AsyncSandbox.delete))
        except (AuthError, Busy, ConnectionFailed, SandboxLost, ServerError, WaitTimeout) as error:
            raise SandboxError(f"no sandbox of {image or 'the default image'}: {error}") from error

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id."""
        return self._box.id

    def check(self) -> None:
        """Raise the kept loss, if there is one."""
        if self.lost is not None:
            raise self.lost.with_traceback(None)  # else it grows with each call

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Run a command, which counts as use. Raises SandboxTerminatedError when the sandbox has ended.

        Raises SandboxError, which is not kept in `lost`, when the server does not answer: a later call may get one.
        """
        self.check()
        try:
            await self._asked(lambda: self._box.exec(["true"], timeout=timeout), seconds=None)
        except EndedByCode as error:
            raise SandboxTerminatedError(str(error)) from error.__cause__
        except SandboxTerminatedError as gone:
            self.lost = gone
            raise

    async def run_command(
        self,
        command: str,
        workdir: str | None = None,
        timeout: int = 60,
        max_output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a command in the image's shell. Any end of the command is a result, with its verdict in `metrics`."""
        most = OUTPUT_BYTES if max_output_bytes is None else max_output_bytes

        async def ended() -> ExecResult:
            return own_end(await self._box.exec(command, cwd=workdir, timeout=timeout), self._box.id)

        try:
            result = await self._call(ended, seconds=None)
        except StartFailed as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=NO_EXIT_CODE)
        except EndedByCode as error:
            return SandboxResult(
                stdout="", stderr=str(error), exit_code=KILLED, metrics={"verdict": error.verdict}
            )
        usage = result.usage
        return SandboxResult(
            stdout=_cut(result.stdout, most),
            stderr=_cut(result.stderr, most),
            exit_code=result.exit_code,
            metrics={"verdict": result.verdict.value, "wall": usage.wall, "cpu": usage.cpu},
        )

    async def read_file(self, path: str, max_bytes: int | None = None, timeout: int = 60) -> SandboxResult:
        """Return a file's text as `stdout`; a file that cannot be read has exit code 1."""
        return await self._file(
            lambda: self._box.files.read(path, length=max_bytes),
            timeout,
            lambda data: data.decode("utf-8", "replace"),
        )

    async def write_file(
        self, path: str, content: str | bytes, executable: bool = False, timeout: int = 60
    ) -> SandboxResult:
        """Write a file and the directories above it; a file that cannot be written has exit code 1."""
        mode = 0o755 if executable else None
        return await self._file(
            lambda: self._box.files.write(path, content, mode=mode), timeout, lambda _: ""
        )

    async def cleanup(self) -> None:
        """End the sandbox, also when the caller is cancelled meanwhile."""
        await on_shared_loop(self._box.delete, to_the_end=True)

    async def _file(
        self,
        work: Callable[[], Coroutine[Any, Any, Result]],
        seconds: float,
        text: Callable[[Result], str],
    ) -> SandboxResult:
        try:
            try:
                return SandboxResult(
                    stdout=text(await self._call(work, seconds=seconds)), stderr="", exit_code=0
                )
            except TimeoutError:
                await self._call(self._answers, seconds=None)
        except (FileError, EndedByCode) as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=1)
        return SandboxResult(stdout="", stderr=f"not done in {seconds} s", exit_code=NO_EXIT_CODE)

    async def _answers(self) -> None:
        """Raise ConnectionFailed unless the sandbox runs a command soon.

        A file call may take too long because of the file, such as a FIFO, or because nothing answers the client, which
        repeats its call for longer than the caller waits.
        """
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                # Half of it, so that code which made `true` endless has an end by the limit, which is an answer.
                await self._box.exec(["true"], timeout=PROBE_SECONDS / 2)
        except StartFailed:
            return
        except TimeoutError:
            raise ConnectionFailed(
                f"a file call took too long, and a command did not run within {PROBE_SECONDS:g} s"
            ) from None

    async def _call(
        self, work: Callable[[], Coroutine[Any, Any, Result]], *, seconds: float | None
    ) -> Result:
        self.check()
        try:
            return await self._asked(work, seconds=seconds)
        except SandboxError as lost:
            self.lost = lost
            raise

    async def _asked(
        self, work: Callable[[], Coroutine[Any, Any, Result]], *, seconds: float | None
    ) -> Result:
        async def limited() -> Result:
            async with asyncio.timeout(seconds):
                return await work()

        try:
            return await on_shared_loop(limited)
        except (FileError, BadRequest):
            raise
        except (SandboxLost, NotFound) as error:
            if isinstance(error, SandboxLost) and (ended := ended_by_code(str(error), error.verdict)):
                raise ended from error
            raise SandboxTerminatedError(f"sandbox {self._box.id} is gone: {error}") from error
        except SandlotError as error:
            raise SandboxError(f"sandbox {self._box.id} does not answer: {error}") from error


class LossRaisingGroup:
    """For a subclass of tinker-cookbook's HarborEnvGroupBuilder, as its first base: losses end a trajectory.

    `cleanup` deletes the sandboxes of all calls of `make_envs`, with which RetryOnFailure runs a trajectory again.
    """

    _sandboxes: list[Any]  # HarborEnvGroupBuilder's: those of its last make_envs

    async def make_envs(self) -> Sequence[Any]:
        """Return the group's environments, after `raise_losses`."""
        earlier = self._sandboxes
        try:
            envs: Sequence[Any] = await super().make_envs()  # type: ignore[misc]
            return raise_losses(envs, self._sandboxes)
        finally:
            self._sandboxes = earlier + self._sandboxes


def raise_losses(envs: Sequence[Any], sandboxes: Sequence[Any]) -> Sequence[Any]:
    """Let each environment's `step` raise the `lost` of its sandbox, in the same order; return the environments.

    The recipe gives a tool's exception to the model, and its HarborReward returns 0.0 for every exception. Raises
    TypeError for sandboxes of another factory than `sandbox_factory`.
    """
    for env, sandbox in zip(envs, sandboxes, strict=True):
        if not isinstance(sandbox, SandlotSandbox):
            raise TypeError(
                f"sandboxes: {type(sandbox).__name__} does not keep its loss: set sandbox_factory=sandbox_factory()"
            )
        env.step = _raising(env.step, sandbox)
    return envs


def _raising(step: Callable[..., Awaitable[Any]], sandbox: SandlotSandbox) -> Callable[..., Awaitable[Any]]:
    @wraps(step)
    async def stepped(*args: Any, **kwargs: Any) -> Any:
        result = await step(*args, **kwargs)
        sandbox.check()
        return result

    return stepped


def _image_of(env_dir: Path) -> str:
    task = env_dir.parent / "task.toml"
    image = tomllib.loads(task.read_text()).get("environment", {}).get("docker_image")
    if not isinstance(image, str):
        raise ValueError(
            f"environment.docker_image: {task} names no image, and a Dockerfile is not built: "
            "push its image to a registry, or pass image= to sandbox_factory"
        )
    return image


def _cut(text: str, most: int) -> str:
    data = text.encode()
    return text if len(data) <= most else data[:most].decode("utf-8", "replace")
