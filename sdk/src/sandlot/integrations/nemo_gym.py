"""The provider `sandlot` of NVIDIA NeMo Gym's sandbox API, which finds it by its entry point."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.providers import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)

from sandlot._async.client import default_client
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import (
    Busy,
    ConnectionFailed,
    NotFound,
    SandboxLost,
    SandlotError,
    ServerError,
    StartFailed,
    WaitTimeout,
)
from sandlot.integrations._lost_commands import own_end
from sandlot.integrations._shared_loop import on_shared_loop
from sandlot.models import ExecResult, Verdict

NO_EXIT_CODE = (
    125  # NeMo Gym's return code of a command that did not end by itself; `error_type` has the cause
)
LABEL_LENGTH = 128  # of a sandbox's label; the server refuses longer ones
OPTIONS = frozenset(
    (
        *("allow", "checkpoint", "deny", "idle_timeout", "labels", "name", "network", "pids", "pool"),
        *("run", "run_id", "run_image_command", "secret_refs", "secrets", "stop_grace", "stop_signal"),
    )
)
_STATUS = {
    "RUNNING": SandboxStatus.RUNNING,
    "TERMINATED": SandboxStatus.STOPPED,
    "TIMEOUT": SandboxStatus.STOPPED,
    "ERROR": SandboxStatus.ERROR,
}


class SandlotProvider:
    """Creates a Sandlot sandbox for each NeMo Gym sandbox.

    `url` and `api_key` are by default those of SANDLOT_URL and SANDLOT_API_KEY. `create` has arguments of
    `sandlot.Sandbox.create` for all sandboxes (OPTIONS), which the `provider_options` of a spec override.
    """

    name = "sandlot"

    def __init__(
        self, url: str | None = None, api_key: str | None = None, create: Mapping[str, Any] | None = None
    ) -> None:
        self._url = url
        self._api_key = api_key
        self._create = _checked(create or {}, where="create")
        self._lost_on_upload: dict[str, AsyncSandbox] = {}
        self._used: set[str] = set()

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Create a sandbox and wait until it runs commands. Raises SandboxCreateError when the server could not."""
        arguments = {
            **self._create,
            **_arguments(spec),
            **_checked(spec.provider_options, where="provider_options"),
        }
        tags = (f"{name}={value}"[:LABEL_LENGTH] for name, value in spec.metadata.items())
        labels = [*arguments.pop("labels", ()), *tags]

        async def made() -> AsyncSandbox:
            client = await default_client(url=self._url, api_key=self._api_key)
            return await AsyncSandbox.create(**arguments, labels=labels, client=client)

        try:
            box = await on_shared_loop(made, discard=AsyncSandbox.delete)
        except (Busy, ConnectionFailed, SandboxLost, ServerError, WaitTimeout) as error:
            raise SandboxCreateError(f"no sandbox of {spec.image or 'the default image'}: {error}") from error
        return SandboxHandle(sandbox_id=box.id, provider_name=self.name, raw=box)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: int | float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command. Raises SandboxLost when the infrastructure ended it; all other ends are results."""
        box = _box(handle)
        self._used.add(box.id)
        try:
            result = await on_shared_loop(
                lambda: box.exec(command, cwd=cwd, env=env, timeout=timeout_s, user=user)
            )
            own_end(result, box.id)
        except StartFailed as error:
            return SandboxExecResult(None, str(error), NO_EXIT_CODE, error_type=Verdict.START_FAILED.value)
        except SandboxLost as error:
            if error.infrastructure:
                raise
            return SandboxExecResult(None, str(error), NO_EXIT_CODE, error_type=error.verdict)
        return SandboxExecResult(
            result.stdout, result.stderr, result.exit_code, error_type=_error_type(result)
        )

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy one file into the sandbox; missing directories are made."""
        box = _box(handle)
        try:
            await on_shared_loop(lambda: box.files.upload(source_path, target_path))
        except asyncio.CancelledError:
            if box.id not in self._used:
                # NeMo Gym's `start` uploads the files of a spec, and forgets the handle when it is cancelled meanwhile.
                self._lost_on_upload[box.id] = box
            raise

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy one file out of the sandbox; it gets its name when it is complete."""
        box = _box(handle)
        target_path.parent.mkdir(parents=True, exist_ok=True)
        await on_shared_loop(lambda: box.files.download(source_path, target_path))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return the sandbox's state; UNKNOWN while the server cannot be asked."""
        box = _box(handle)
        try:
            info = await on_shared_loop(box.refresh)
        except NotFound:
            return SandboxStatus.STOPPED
        except SandlotError:
            return SandboxStatus.UNKNOWN
        return _STATUS.get(info.status, SandboxStatus.STARTING)

    async def close(self, handle: SandboxHandle) -> None:
        """End the sandbox, also when the caller is cancelled meanwhile."""
        box = _box(handle)
        self._used.discard(box.id)
        await on_shared_loop(box.delete, to_the_end=True)
        self._lost_on_upload.pop(box.id, None)

    async def aclose(self) -> None:
        """End sandboxes whose start was cancelled. The process's connections stay for other providers."""
        for box in list(self._lost_on_upload.values()):
            await on_shared_loop(box.delete, to_the_end=True)
            self._lost_on_upload.pop(box.id, None)


def _box(handle: SandboxHandle) -> AsyncSandbox:
    if not isinstance(handle.raw, AsyncSandbox):
        raise ValueError(f"handle: sandbox {handle.sandbox_id} was not created by the provider 'sandlot'")
    return handle.raw


def _checked(options: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(OPTIONS))}")
    return dict(options)


def _arguments(spec: SandboxSpec) -> dict[str, Any]:
    """Return the arguments of `create` that a spec sets; what it leaves open is left to the server."""
    resources = spec.resources
    found = {
        "image": spec.image,
        "timeout": spec.ttl_s,
        "wait": spec.ready_timeout_s,
        "workdir": spec.workdir,
        "env": {name: str(value) for name, value in spec.env.items()} or None,
        "start_command": spec.entrypoint,
        "cpu": resources.cpu,
        "memory": None if resources.memory_mib is None else f"{resources.memory_mib}MiB",
        "disk": None if resources.disk_gib is None else f"{resources.disk_gib}GiB",
        "gpu_count": resources.gpu,
        "gpu_type": resources.gpu_type,
    }
    return {name: value for name, value in found.items() if value is not None}


def _error_type(result: ExecResult) -> str | None:
    """Return the verdict of a command that something else ended than the command itself."""
    return None if result.verdict in (Verdict.EXITED, Verdict.SIGNALED) else result.verdict.value
