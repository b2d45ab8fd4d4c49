"""Inspect's sandbox provider: a sandbox for each sample, over one connection pool of the process."""
# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false, reportUntypedClassDecorator=false

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, overload

import anyio
from inspect_ai.util import (
    ComposeConfig,
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    is_compose_yaml,
    is_dockerfile,
    sandboxenv,
)

from sandlot._async.sandbox import AsyncSandbox
from sandlot._compose.files import load
from sandlot._compose.service import Service, service_of
from sandlot.errors import BadRequest, FileDenied, NotFound, SandboxLost, SandlotError, StartFailed
from sandlot.integrations._lost_commands import own_end
from sandlot.integrations.inspect.errors import ExecTimeout, translated_end, translated_file_errors
from sandlot.models import ExecResult as Result
from sandlot.models import Verdict

LABEL = "inspect"  # of all sandboxes that this provider makes
# A sample may wait long for its model. Killed processes leave sandboxes behind, which then end by themselves.
DEFAULTS: dict[str, Any] = {"timeout": 24 * 3600.0, "idle_timeout": 4 * 3600.0, "wait": 3600.0}
NOT_EXECUTABLE = 126
# Fields of a command that a model may have made up, with text that is no UTF-8, or too long.
OF_COMMANDS = frozenset(("command", "stdin", "cwd", "user"))
_WHO = "id -u; id -g; pwd"
_REWRITE = '[ -f "$0" ] && [ -w "$0" ] && exec cat > "$0"'

logger = logging.getLogger(__name__)


@sandboxenv(name="sandlot")
class SandlotSandboxEnvironment(SandboxEnvironment):
    """One sandbox, of one sample."""

    def __init__(self, box: AsyncSandbox, *, user: str | None, file_user: str | None, workdir: str) -> None:
        """`user` is the default of commands (None: the image's), `file_user` that of file calls (None: root)."""
        super().__init__()
        self._box = box
        self._user = user
        self._file_user = file_user
        self._workdir = workdir

    # -- life ------------------------------------------------------------------------------------------------

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        service = _service(config, metadata)
        box = await _created(service)
        try:
            return {service.name: await cls._of(box, service)}
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _delete(box)
            raise

    @classmethod
    async def _of(cls, box: AsyncSandbox, service: Service) -> SandlotSandboxEnvironment:
        """Find out who commands are and where they start, so that file calls have the same rights and paths."""
        user, workdir = service.user, service.workdir
        if workdir is not None and not await box.files.exists(workdir):
            uid, gid, _ = await _who(box, user=user, cwd="/")
            await box.files.mkdir(posixpath.dirname(workdir))
            # With its owner at once: a start command waits for it, and may write there.
            await box.files.mkdir(workdir, owner=uid, group=gid)
        uid, gid, workdir = await _who(box, user=user, cwd=workdir)
        # Without `user`, file calls act as root, and new files belong to the image's user.
        plain = user is None and (uid, gid) == (0, 0)
        return cls(box, user=user, file_user=None if plain else f"{uid}:{gid}", workdir=workdir)

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await _delete(environment.as_type(cls)._box)

    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        if not cleanup:
            print("\nSandboxes are left. Delete all with: inspect sandbox cleanup sandlot [ID]\n")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        if id is not None:
            await _delete(await AsyncSandbox.connect(id))
            return
        found = [info.id for info in await AsyncSandbox.list(labels=[LABEL])]
        if not found:
            print(f"This API key has no sandbox with the label {LABEL}.")
            return
        print("\n".join(found))
        question = f"Delete these {len(found)} sandboxes, also of evals that run? [y/N] "
        if (await asyncio.to_thread(input, question)).strip().lower() in ("y", "yes"):
            await AsyncSandbox.delete_many(found)

    @classmethod
    def config_files(cls) -> list[str]:
        return ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"]

    # -- commands --------------------------------------------------------------------------------------------

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command once. A timeout is none of the transport's, so `timeout_retry` has nothing to repeat."""
        if any("\0" in word for word in (*cmd, cwd or "")):
            raise ValueError("embedded null byte")  # as subprocess words it, which Inspect looks for
        user = user or self._user
        try:
            with translated_end():
                done = await self._box.exec(
                    list(cmd), stdin=input, cwd=self._path(cwd or ""), env=env, user=user, timeout=timeout
                )
                own_end(done, self._box.id)
        except BadRequest as error:
            if error.field not in OF_COMMANDS and not isinstance(error, StartFailed):
                raise
            if "rootless" in str(error):
                raise SandboxUserUnsupportedError(str(error)) from error
            return ExecResult(False, NOT_EXECUTABLE, "", f"{error}\n")
        if done.verdict == Verdict.TIMEOUT:
            raise ExecTimeout(
                f"the command did not end within {timeout} s", truncated_output=done.stdout + done.stderr
            )
        _check_size(done)
        if done.exit_code == NOT_EXECUTABLE and "permission denied" in f"{done.stderr}{done.message}".lower():
            raise PermissionError(13, done.message or done.stderr.strip(), cmd[0])
        return ExecResult(done.ok, done.exit_code, done.stdout, done.stderr)

    # -- files -----------------------------------------------------------------------------------------------

    async def write_file(self, file: str, contents: str | bytes) -> None:
        with translated_file_errors(file, writes=True):
            data = contents.encode() if isinstance(contents, str) else contents
            try:
                await self._box.files.write(self._path(file), data, user=self._file_user)
            except FileDenied:
                if self._file_user is None or not await self._rewritten(self._path(file), data):
                    raise

    async def _rewritten(self, path: str, data: bytes) -> bool:
        """Write a file in place, as commands may where the directory, or its sticky bit, allows no replacement."""
        done = await self._box.exec(["sh", "-c", _REWRITE, path], stdin=data, cwd="/", user=self._user)
        return done.ok

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with translated_file_errors(file, writes=False):
            data = await self._box.files.read(self._path(file), length=limit + 1, user=self._file_user)
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    def _path(self, path: str) -> str:
        return posixpath.join(self._workdir, path)

    # -- access ----------------------------------------------------------------------------------------------

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        user = user or self._user
        words = ["sandlot", "shell", self._box.id, *(["--user", user] if user else [])]
        return SandboxConnection(type="sandlot", command=shlex.join(words), container=self._box.id)


def _service(config: Any, metadata: Mapping[str, Any]) -> Service:
    """Read a configuration: a compose file, what Inspect has parsed of one, or an image. Raises ValueError."""
    if config is None:
        return Service()
    if isinstance(config, ComposeConfig):
        return service_of(config.model_dump(by_alias=True, exclude_none=True), source="compose")
    if not isinstance(config, str):
        raise ValueError(f"sandbox: sandlot takes a compose file or an image, not {type(config).__name__}")
    if is_dockerfile(config):
        raise ValueError(
            f"sandbox: {config}: Sandlot builds no images; push one to a registry and name it, "
            'as in ("sandlot", "registry/image:tag")'
        )
    if is_compose_yaml(config) or config.endswith((".yaml", ".yml")):
        return service_of(load(Path(config)), source=config, variables=_variables(metadata))
    return Service(create={"image": config})


def _variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment, and a sample's metadata under the names that Inspect gives them in compose files."""
    named = {
        f"SAMPLE_METADATA_{key.replace(' ', '_').upper()}": str(value) for key, value in metadata.items()
    }
    return {**os.environ, **named}


async def _created(service: Service) -> AsyncSandbox:
    """Create a sandbox; a cancelled create leaves none."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError("sandlot needs Inspect's asyncio backend, and this is another") from error
    arguments: dict[str, Any] = {**DEFAULTS, **service.create, "labels": [LABEL]}
    # A task of its own: Inspect's cancelled scopes interrupt every await, also those of a clean-up.
    creating = loop.create_task(AsyncSandbox.create(**arguments))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        creating.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([creating])
            if not creating.cancelled() and creating.exception() is None:
                await _delete(creating.result())
        raise


async def _delete(box: AsyncSandbox) -> None:
    try:
        await box.delete()
    except (NotFound, SandboxLost):
        return
    except SandlotError as error:
        # The sample has its result; the sandbox ends by its idle timeout.
        logger.warning("sandbox %s could not be deleted: %s", box.id, error)


async def _who(box: AsyncSandbox, *, user: str | None, cwd: str | None) -> tuple[int, int, str]:
    """Return uid, gid and working directory of a command. Raises ValueError."""
    try:
        done = await box.exec(["sh", "-c", _WHO], user=user, cwd=cwd)
    except StartFailed as error:
        raise ValueError(f"sandbox: commands cannot start: {error}") from error
    lines = done.stdout.split("\n", 2)
    if not done.ok or len(lines) < 3:
        told = done.stderr.strip() or done.message
        raise ValueError(
            f"sandbox: the image needs sh and id, for Inspect, too; `sh -c '{_WHO}'` failed: {told}"
        )
    return int(lines[0]), int(lines[1]), lines[2].removesuffix("\n")


def _check_size(done: Result) -> None:
    """Raise OutputLimitExceededError beyond Inspect's limit of a stream, or beyond what the server keeps."""
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if done.truncated or max(done.stdout_bytes, done.stderr_bytes) > limit:
        shown = done.stdout.encode()[:limit] + done.stderr.encode()[:limit]
        raise OutputLimitExceededError(
            SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, shown.decode("utf-8", "replace")
        )
