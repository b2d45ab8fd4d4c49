"""A container provider of OpenEnv: runs an environment's server in a sandbox and exposes its port."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from openenv.core.containers.runtime.providers import ContainerProvider

from sandlot._sync.client import Client
from sandlot._sync.sandbox import Sandbox
from sandlot.errors import NotFound, SandlotError
from sandlot.integrations._ended import SandboxEnd

PORT = 8000  # of the servers that OpenEnv's own images run
READY_SECONDS = 120.0  # OpenEnv's own 30 are short for a server that imports much on a full node
POLL_SECONDS = 0.1
LOG_BYTES = 2000  # of the server's last output in an error


class SandlotProvider(ContainerProvider):
    """Starts one sandbox at a time; it ends with `stop_container`, with this object, or with the process.

    `create` has arguments of `sandlot.Sandbox.create` for all sandboxes, `client` is by default that of SANDLOT_URL.
    """

    def __init__(self, *, create: Mapping[str, Any] | None = None, client: Client | None = None) -> None:
        self._create = dict(create or {})
        self._client = client
        self._box: Sandbox | None = None
        self._end: SandboxEnd | None = None

    @property
    def box(self) -> Sandbox | None:
        """The sandbox, between `start_container` and `stop_container`."""
        return self._box

    def start_container(
        self,
        image: str,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        *,
        start_command: str | Sequence[str] | None = None,
        **create: Any,
    ) -> str:
        """Create a sandbox that runs the image's own command, or `start_command`; return the URL of its port.

        Raises RuntimeError when the sandbox cannot start, or when this provider has one.
        """
        if self._box is not None:
            raise RuntimeError(
                f"this provider already runs sandbox {self._box.id}: call stop_container first"
            )
        arguments: dict[str, Any] = {**self._create, **create, "client": self._client}
        if start_command is None:
            arguments["run_image_command"] = True
        else:
            arguments["start_command"] = start_command
        try:
            box = Sandbox.create(image, env=env_vars, **arguments)
        except SandlotError as error:
            raise RuntimeError(f"cannot start a sandbox of {image}: {error}") from error
        self._box = box
        self._end = SandboxEnd(self, box)
        try:
            return box.expose(port or PORT).rstrip("/")
        except BaseException as error:
            self.stop_container()
            if isinstance(error, SandlotError):
                raise RuntimeError(
                    f"cannot expose port {port or PORT} of sandbox {box.id}: {error}"
                ) from error
            raise

    def stop_container(self) -> None:
        """End the sandbox, if there is one."""
        end, self._box, self._end = self._end, None, None
        if end is not None:
            end.now()

    def wait_for_ready(self, base_url: str, timeout_s: float = READY_SECONDS) -> None:
        """Wait until the server answers /health. Otherwise end the sandbox: OpenEnv drops the provider then.

        `timeout_s` is in seconds; OpenEnv's `from_docker_image` passes none.

        Raises TimeoutError, or RuntimeError when the sandbox has ended.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while not _healthy(base_url):
                self._raise_if_ended()
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{base_url}/health did not answer within {timeout_s:g} s: {self._output()}"
                    )
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.stop_container()
            raise

    def _raise_if_ended(self) -> None:
        if self._box is None:
            return
        try:
            info = self._box.refresh()
        except NotFound as error:
            raise RuntimeError(f"sandbox {self._box.id} is gone: {error}") from error
        if info.ended:
            raise RuntimeError(f"sandbox {info.id} has ended ({info.verdict}): {self._output()}")

    def _output(self) -> str:
        """Return the end of what the server wrote, for an error's text."""
        try:
            text = "" if self._box is None else self._box.logs(tail=LOG_BYTES).strip()
        except SandlotError:
            text = ""
        return text or "its start command wrote nothing"


def _healthy(base_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base_url}/health", timeout=5) as response:
            return response.status == 200
    except (OSError, urllib.error.HTTPError):
        return False
