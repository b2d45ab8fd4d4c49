"""harbor's BaseEnvironment over Sandlot: one sandbox for each trial, in the words of harbor's tasks."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.models.task.config import NetworkMode, NetworkPolicy

from sandlot._async.client import AsyncClient
from sandlot._async.sandbox import AsyncSandbox
from sandlot._sync.client import Client
from sandlot._sync.sandbox import Sandbox
from sandlot._tasks_async import close_at_end, scope, shielded
from sandlot.config import named_endpoint
from sandlot.dockerfile import build
from sandlot.errors import AuthError, ConfigError, SandlotError
from sandlot.integrations.harbor.arguments import account, allowed, mebibytes
from sandlot.integrations.harbor.commands import home, run
from sandlot.integrations.harbor.losses import losses
from sandlot.integrations.harbor.own_end import OwnEnd
from sandlot.integrations.harbor.transfers import Limit, download_directory, upload_directory

RETRY_SECONDS = 180.0  # for which calls wait for a server that is down; a node's gateway starts in less
BUILD_MEMORY = 2048  # MiB that a build has at least
WAIT_SHARE = 0.9  # of harbor's own limit, whose error does not say what the sandbox waits for
COMPOSE = ("docker-compose.yaml", "docker-compose.yml")


class SandlotEnvironment(BaseEnvironment):
    """A sandbox of the server that SANDLOT_URL and SANDLOT_API_KEY name, else of a private stack on this machine.

    Keywords, as `--ek NAME=VALUE`: `pool` is the only warm pool to use, `run` the training run, `gpu_type` and
    `workdir` are those of tasks that name none, `timeout_minutes` is the longest life of a sandbox, and
    `idle_timeout_minutes` its longest time without a command (0: unlimited), after which one that a killed harbor left
    behind ends.
    """

    def __init__(
        self,
        *args: Any,
        pool: str | None = None,
        run: str | None = None,
        gpu_type: str | None = None,
        workdir: str | None = None,
        timeout_minutes: float = 1440,
        idle_timeout_minutes: float = 120,
        **kwargs: Any,
    ) -> None:
        self._pool = pool
        self._run = run
        self._gpu_type = gpu_type
        self._default_workdir = workdir
        self._timeout = float(timeout_minutes) * 60
        self._idle_timeout = min(float(idle_timeout_minutes) * 60, self._timeout)
        self._box: AsyncSandbox | None = None
        self._given: dict[str, str] = {}  # variables that all commands have from the sandbox itself
        self._homes: dict[str | int, str] = {}
        super().__init__(*args, **kwargs)
        self._own_end = OwnEnd(self.logger)

    @staticmethod
    def type() -> str:
        return "sandlot"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            gpus=True,  # the server refuses those that it does not have
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Check the server's address and key before the first trial; harbor 0.26 and later gives the keywords, too."""
        try:
            if named_endpoint(url=None, api_key=None) is None:
                if importlib.util.find_spec("sandlot_gateway") is None:
                    raise ConfigError(
                        "no server: set SANDLOT_URL and SANDLOT_API_KEY, or install sandlot[local] for one of this machine"
                    )
                return
            with Client(retry_for=10.0) as client:
                Sandbox.list(limit=1, client=client)
        except (ConfigError, AuthError) as error:
            raise SystemExit(f"sandlot: {error}") from None
        except SandlotError as error:
            raise SystemExit(f"sandlot: the server of SANDLOT_URL does not answer: {error}") from None

    def _validate_definition(self) -> None:
        for name in COMPOSE:
            if (self.environment_dir / name).exists():
                raise ValueError(
                    f"{self.environment_dir / name}: Sandlot runs one container for each task, not several services; "
                    "use an environment of harbor that has Docker Compose"
                )
        require_agent_environment_definition(
            self.environment_dir, docker_image=self.task_env_config.docker_image
        )

    # the sandbox

    async def start(self, force_build: bool) -> None:
        self._given = self._startup_env()
        self._own_end.reason = None
        origin = await self._origin(force_build)
        with losses("start"):
            self._box = await AsyncSandbox.create(
                **origin,
                name=self.session_id[:100],
                # No list or log shows them: harbor passes keys of model providers among them.
                secrets=self._given,
                labels=["harbor"],
                run=self._run,
                pool=self._pool,
                timeout=self._timeout,
                idle_timeout=self._idle_timeout or None,
                cpu=self._effective_cpus,
                memory=mebibytes(self._effective_memory_mb),
                gpu_count=self._effective_gpus or None,
                gpu_type=self._wanted_gpu() if self._effective_gpus else None,
                wait=self.task_env_config.build_timeout_sec * WAIT_SHARE,
                # From the first moment: a policy set afterwards would leave the image's own processes a gap.
                allow=None if self._network_is_public else allowed(self.network_policy),
                client=await _client(),
            )
        try:
            await self._prepare(self._box)
        except BaseException:
            await shielded(lambda: self.stop(delete=True))
            raise

    async def _origin(self, force_build: bool) -> dict[str, Any]:
        """Return what the sandbox is made of, as arguments of create: an image, or the build of the Dockerfile.

        Trials share a build by the content of its directory, here and on other machines, also with `force_build`,
        which only prefers the Dockerfile to an image.
        """
        image = self.task_env_config.docker_image
        if should_use_prebuilt_docker_image(
            self.environment_dir, docker_image=image, force_build=force_build
        ):
            return {"image": image, "disk": mebibytes(self._effective_storage_mb)}
        with losses("build"):
            built = await build(
                self.environment_dir,
                timeout=self.task_env_config.build_timeout_sec,
                cpu=self._effective_cpus,
                # Compilers and package managers need more than many a task: Docker limits no build either.
                memory=mebibytes(max(self._effective_memory_mb or 0, BUILD_MEMORY)),
                disk=mebibytes(self._effective_storage_mb),
                labels=["harbor"],
                on_output=lambda text: self.logger.debug(text.rstrip("\n")),
                client=await _client(),
            )
        return {"checkpoint": built}

    def _wanted_gpu(self) -> str | None:
        types = self.task_env_config.gpu_types or []
        return types[0] if types else self._gpu_type

    async def _prepare(self, box: AsyncSandbox) -> None:
        with self._own_end.checked("start"):
            if self._workdir:
                await box.files.mkdir(self._workdir)
        made = await self.ensure_dirs(self._mount_targets(writable_only=True))
        if made is not None and made.return_code != 0:
            raise RuntimeError(f"could not make the directories of harbor's logs: {made.stderr}")
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Delete the sandbox; without `delete` it stays until its timeouts, and the log says which one it is."""
        box, self._box = self._box, None
        if box is None:
            return
        if not delete:
            self.logger.info(
                f"sandbox {box.id} is kept: look at it with `sandlot shell {box.id}`, delete it with `sandlot rm`"
            )
            return
        try:
            await box.delete()
        except SandlotError as error:
            # A trial that has its reward does not fail for this: the sandbox has an idle timeout.
            self.logger.warning(f"could not delete sandbox {box.id}, which ends when idle: {error}")

    @property
    def _workdir(self) -> str | None:
        return self.task_env_config.workdir or self._default_workdir

    def _started(self) -> AsyncSandbox:
        if self._box is None:
            raise RuntimeError("this environment has no sandbox: start() has not run, or stop() has")
        return self._box

    # commands and files

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command; one that exceeds `timeout_sec` is killed with all its children, and has exit code 124.

        One with which the code ends the whole sandbox has 137; the next raises RewardFileNotFoundError.
        """
        box, who = self._started(), account(self._resolve_user(user))
        self._own_end.check()
        given: Mapping[str, str] = self._merge_env(env) or {}
        variables = {name: value for name, value in given.items() if self._given.get(name) != value}
        if who not in (None, "root", 0) and "HOME" not in given:
            if who not in self._homes:
                self._homes[who] = await home(box, who)
            variables["HOME"] = self._homes[who]
        ended = await run(
            box,
            command,
            cwd=cwd or self._workdir,
            env=variables,
            timeout=timeout_sec or None,
            user=who,
            emit=self._output_callback(),
        )
        if ended.with_sandbox:
            self._own_end.reason = ended.stderr.strip()
            if user == "root":  # harbor's own, whose exit code it takes for a failure of the environment
                self._own_end.check()
        return ExecResult(stdout=ended.stdout, stderr=ended.stderr, return_code=ended.code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        with self._own_end.checked("upload"):
            await self._started().files.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        with self._own_end.nothing_left("upload"):
            await upload_directory(self._started(), Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._own_end.checked("download"):
            box = self._started()
            await box.files.download(source_path, target, on_bytes=Limit(box, source_path).count)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        with self._own_end.nothing_left("download"):
            await download_directory(self._started(), source_dir, Path(target_dir))

    async def download_dir_filtered(self, **what: Any) -> None:
        with self._own_end.nothing_left("download"):
            try:
                await super().download_dir_filtered(**what)
            except RuntimeError:  # harbor's own, of a command with an exit code
                self._own_end.check()
                raise

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        with self._own_end.checked("network policy"):
            if network_policy.network_mode == NetworkMode.PUBLIC:
                await self._started().set_network(deny=[])
            else:
                await self._started().set_network(allow=allowed(network_policy))


async def _client() -> AsyncClient:
    """Return the client of all environments of this event loop, so that a thousand trials share its connections."""
    clients = scope()
    key = ("harbor", RETRY_SECONDS)
    if key not in clients:
        client = clients[key] = AsyncClient(retry_for=RETRY_SECONDS)
        await close_at_end(client.aclose)
    return clients[key]
