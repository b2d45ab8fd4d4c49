"""The sandbox client of the OpenAI Agents SDK: creates, resumes and deletes sessions."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import functools
import uuid
from typing import Any, Literal

from agents.sandbox import Manifest, SnapshotSpec, resolve_snapshot
from agents.sandbox.session import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
    Dependencies,
    Instrumentation,
    SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.snapshot import SnapshotBase

from sandlot._async.client import default_client
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import NotFound
from sandlot.integrations._shared_loop import on_shared_loop
from sandlot.integrations.openai_agents.session import SandlotSession
from sandlot.integrations.openai_agents.state import Persistence, SandlotSessionState


class SandlotSandboxClientOptions(BaseSandboxClientOptions):
    """What differs between sessions of one client.

    `image` and `timeout` (seconds that the sandbox may live) replace the client's. `exposed_ports` are those that
    `resolve_exposed_port` may open. `workspace_persistence="checkpoint"` makes snapshots checkpoints, which have all
    files of the sandbox and stay on the server until they are deleted.
    """

    type: Literal["sandlot"] = "sandlot"
    image: str | None = None
    timeout: float | None = None
    exposed_ports: tuple[int, ...] = ()
    workspace_persistence: Persistence = "tar"


class SandlotSandboxClient(BaseSandboxClient[SandlotSandboxClientOptions]):
    """Runs each session in a sandbox of `image`; `create` has further arguments of `sandlot.Sandbox.create`.

    They stay in this process: the state of a run, which may be stored, has none of them.
    """

    backend_id = "sandlot"
    supports_default_options = True

    def __init__(
        self,
        image: str | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
        **create: Any,
    ) -> None:
        self._image = image
        self._url = url
        self._api_key = api_key
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies
        self._create_arguments = create

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SandlotSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Create a session and its sandbox. Raises the errors of `sandlot.Sandbox.create`."""
        options = options if options is not None else SandlotSandboxClientOptions()
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        session_id = uuid.uuid4()
        box = await self._created(options.image, options.timeout)
        state = SandlotSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=options.exposed_ports,
            sandbox_id=box.id,
            image=options.image,
            timeout=options.timeout,
            workspace_persistence=options.workspace_persistence,
        )
        return self._session(state, box, preserved=False)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Return a session in the sandbox of `state`, or in a new one that `start` fills from its snapshot."""
        if not isinstance(state, SandlotSessionState):
            raise TypeError(f"state: must be one of SandlotSandboxClient, not {type(state).__name__}")
        state.assert_path_grants_rebound()
        box = await self._connected(state.sandbox_id)
        if box is not None:
            return self._session(state, box, preserved=True)
        box = await self._created(state.image, state.timeout)
        state.sandbox_id = box.id
        state.workspace_root_ready = False
        return self._session(state, box, preserved=False)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the session's sandbox; one that has ended is no error."""
        inner = session._inner
        if not isinstance(inner, SandlotSession):
            raise TypeError(f"session: must be one of SandlotSandboxClient, not {type(inner).__name__}")
        await inner.delete()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Return the state that `serialize_session_state` wrote."""
        return self._deserialize_session_state_payload(payload, SandlotSessionState)

    def _session(self, state: SandlotSessionState, box: AsyncSandbox, *, preserved: bool) -> SandboxSession:
        again = functools.partial(self._created, state.image, state.timeout)
        session = SandlotSession(state=state, box=box, create=again)
        session._set_start_state_preserved(preserved)
        return self._wrap_session(session, instrumentation=self._instrumentation)

    async def _created(
        self, image: str | None, timeout: float | None, checkpoint: str | None = None
    ) -> AsyncSandbox:
        arguments: dict[str, Any] = {
            "image": self._image if image is None else image,
            **self._create_arguments,
        }
        if timeout is not None:
            arguments["timeout"] = timeout
        if checkpoint is not None:
            arguments |= {"image": None, "checkpoint": checkpoint, "pool": None}

        async def created() -> AsyncSandbox:
            client = await default_client(url=self._url, api_key=self._api_key)
            return await AsyncSandbox.create(client=client, **arguments)

        return await on_shared_loop(created, discard=AsyncSandbox.delete)

    async def _connected(self, sandbox_id: str) -> AsyncSandbox | None:
        async def connected() -> AsyncSandbox | None:
            client = await default_client(url=self._url, api_key=self._api_key)
            try:
                box = await AsyncSandbox.connect(sandbox_id, client=client)
            except NotFound:
                return None
            return None if box.info.ended else box

        return await on_shared_loop(connected)
