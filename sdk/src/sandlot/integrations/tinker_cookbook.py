"""A sandbox of tinker-cookbook: `sandbox_factory` of its harbor recipes takes what `sandbox_factory` returns."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tinker_cookbook.exceptions import SandboxError
from tinker_cookbook.sandbox.sandbox_interface import SandboxResult, SandboxTerminatedError

from sandlot._async.client import default_client
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import (
    Busy,
    ConnectionFailed,
    FileError,
    NotFound,
    SandboxLost,
    ServerError,
    StartFailed,
    WaitTimeout,
)
from sandlot.integrations._lost_commands import own_end
from sandlot.integrations._shared_loop import on_shared_loop
from sandlot.models import ExecResult

Result = TypeVar("Result")

NO_EXIT_CODE = -1  # tinker-cookbook's exit code of a command that did not run
OUTPUT_BYTES = 128 * 1024  # of each stream, tinker-cookbook's default


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
    """A sandbox that lives until `cleanup` or for `timeout` seconds. Conforms to SandboxInterface."""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    @classmethod
    async def create(cls, image: str | None = None, *, timeout: float = 600, **create: Any) -> SandlotSandbox:
        """Create a sandbox. Raises SandboxError when the server could not start it."""

        async def made() -> AsyncSandbox:
            return await AsyncSandbox.create(image, timeout=timeout, client=await default_client(), **create)

        try:
            return cls(await on_shared_loop(made, discard=AsyncSandbox.delete))
        except (Busy, ConnectionFailed, SandboxLost, ServerError, WaitTimeout) as error:
            raise SandboxError(f"no sandbox of {image or 'the default image'}: {error}") from error

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id."""
        return self._box.id

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Run a command, which counts as use. Raises SandboxTerminatedError when the sandbox has ended."""
        await self._call(lambda: self._box.exec(["true"], timeout=timeout), seconds=None)

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
            return SandboxResult(stdout=text(await self._call(work, seconds=seconds)), stderr="", exit_code=0)
        except FileError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=1)
        except TimeoutError:
            return SandboxResult(stdout="", stderr=f"not done in {seconds} s", exit_code=NO_EXIT_CODE)

    async def _call(
        self, work: Callable[[], Coroutine[Any, Any, Result]], *, seconds: float | None
    ) -> Result:
        async def limited() -> Result:
            async with asyncio.timeout(seconds):
                return await work()

        try:
            return await on_shared_loop(limited)
        except (SandboxLost, NotFound) as error:
            raise SandboxTerminatedError(f"sandbox {self._box.id} is gone: {error}") from error
        except (Busy, ConnectionFailed, ServerError) as error:
            raise SandboxError(f"sandbox {self._box.id} does not answer: {error}") from error


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
