"""Serves E2B's control API: create, get, list, pause and end sandboxes, and change their time and network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.control import egress
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.control.sandboxes import create_sandbox
from sandlot_gateway.control.services import Services, owned
from sandlot_gateway.data.answers import Receive, Refusal, Scope, Send
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import SidecarError

from . import documents, requests
from .access import Access
from .auto_pause import AutoPauses
from .builds import routes as build_routes
from .builds.service import Builds
from .deadlines import Deadlines
from .failures import Problem
from .forks import Forks
from .listing import PAUSED, RUNNING
from .lists import Lists
from .pauses import Paused, Pauses, already_paused
from .request_parts import body_of, header_of, query_of, send_answer
from .requests import in_their_words
from .serving import Serving
from .snapshots import Snapshots
from .starts import CREATE_WAIT, HOLD, started
from .templates import Templates
from .usage import metrics

_log = logging.getLogger(__name__)

Answer = tuple[int, Any, list[tuple[bytes, bytes]]]


class Control:
    def __init__(
        self, have: Services, *, access: Access, serving: Serving, gate: RequestGate, pool: HttpPool
    ) -> None:
        self._check_open = gate.check_open  # raises Refusal while the gateway shuts down
        self._have = have
        self._access = access
        self._serving = serving
        self._templates = Templates(have.settings.e2b_templates, backend=have.backend)
        self._deadlines = Deadlines(have)
        self._snapshots = Snapshots(have)
        self._pauses = Pauses(have)
        self._auto_pauses = AutoPauses(have, deadlines=self._deadlines, pauses=self._pauses)
        self._lists = Lists(have, templates=self._templates, deadlines=self._deadlines, pauses=self._pauses)
        self._builds = Builds(have, templates=self._templates, gate=gate, pool=pool)
        self._forks = Forks(have, begun=self._begun, ready=self._builds.wait_ready)
        self._domain = have.settings.e2b_domain

    def is_known(self, scope: Scope) -> bool:
        """Return whether the request has a valid API key or link; otherwise its body is not buffered."""
        if self._builds.is_upload(scope):
            return True
        try:
            self._access.tenant(scope)
        except Problem:
            return False
        return True

    def start(self) -> None:
        self._builds.start_sweeps()
        self._auto_pauses.start()

    async def close(self) -> None:
        """Fail the builds that run here."""
        await self._auto_pauses.close()
        await self._builds.close()

    async def http(self, scope: Scope, receive: Receive, send: Send, *, route: str, request_id: bytes) -> int:
        """Answer one request; return its status. Raises ClientGone."""
        try:
            self._check_open(scope)
            if self._builds.is_upload(scope):
                status, document, headers = await build_routes.upload(self._builds, scope, receive)
            else:
                who = self._access.tenant(scope)
                status, document, headers = await self._answer(scope, receive, route=route, who=who)
        except Problem as problem:
            status, document, headers = problem.status, problem.document(), problem.headers
            if status == 401:
                headers = [*headers, (b"connection", b"close")]
        except Refusal as refusal:
            status, headers = refusal.status, [*refusal.headers, (b"connection", b"close")]
            document = {"code": status, "message": str(refusal)}
        except ApiError as error:
            # Here 422 would be an unknown error: the SDK knows 400.
            status = 400 if error.status == 422 else error.status
            document = {"code": status, "message": in_their_words(error.detail)}
            headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        headers = [*headers, (b"x-request-id", request_id)]
        await send_answer(send, status, document, headers=headers)
        return status

    async def _answer(self, scope: Scope, receive: Receive, *, route: str, who: Tenant) -> Answer:
        method: str = scope["method"]
        found = await build_routes.answer(self._builds, scope, receive, route=route, who=who, body=body_of)
        if found is not None:
            return found
        match route.split("/"):
            case ["sandboxes"] if method == "POST":
                return await self._create(scope, receive, who)
            case ["sandboxes"] if method == "GET":
                listed, token = await self._lists.page(query_of(scope), who)
                return 200, listed, [] if token is None else [(b"x-next-token", token.encode())]
            case ["sandboxes", sandbox_id] if method in ("GET", "DELETE"):
                found = await self._found(sandbox_id, who)
                return await (self._get if method == "GET" else self._kill)(found)
            case ["sandboxes", sandbox_id, "connect" | "resume"] if method == "POST":
                found = await self._found(sandbox_id, who)
                return await self._connect(found, await body_of(receive), receive=receive, who=who)
            case ["sandboxes", sandbox_id, "pause"] if method == "POST":
                return await self._pause(await self._found(sandbox_id, who), await body_of(receive))
            case ["sandboxes", sandbox_id, "metrics"] if method == "GET":
                sandbox = await self._running(sandbox_id, who)
                return 200, await metrics(sandbox, self._have, query_of(scope)), []
            case ["sandboxes", sandbox_id, "fork"] if method == "POST":
                sandbox, body = await self._running(sandbox_id, who), await body_of(receive)
                return 201, await self._forks.create(sandbox, body, receive=receive, who=who), []
            case ["sandboxes", sandbox_id, action] if (method, action) in _ACTIONS:
                sandbox = await self._running(sandbox_id, who)
                return await _ACTIONS[method, action](self, sandbox, await body_of(receive))
            case ["snapshots"] if method == "GET":
                return 200, await self._snapshots.list(who, query_of(scope)), []
            case ["templates", snapshot_id] if method == "DELETE":
                await self._snapshots.delete(who, snapshot_id)
                return 204, None, []
            case ["sandboxes", _, "logs"]:
                raise Problem(501, "logs are not supported here: docs/e2b.md says what is")
            case ["templates" | "snapshots" | "volumes" | "secrets" | "teams" | "v3" as what, *_]:
                text = f"{what} are not supported here: name a pool or an image as the template of a sandbox"
                raise Problem(501, text)
            case _:
                raise Problem(404, f"no such route: {method} /{route[:200]}")

    async def _create(self, scope: Scope, receive: Receive, who: Tenant) -> Answer:
        have, key = self._have, header_of(scope, b"idempotency-key") or None
        asked = requests.read(await body_of(receive), requests.NewSandbox)
        requests.refuse_unsupported(asked)
        until = asyncio.get_running_loop().time() + CREATE_WAIT
        template = await self._builds.catalogue.find(asked.template_id, who)
        ports = requests.ports_of(asked.network)
        request = requests.create_request(asked, template, key=key, wait=HOLD)
        sandbox = await create_sandbox(
            request,
            receive=receive,
            have=have,
            who=who,
            e2b=template.kept,
            ready_command=template.ready,
            ports=ports,
            auto_pause=bool(asked.auto_pause),
            check=self._pauses.check_can_pause if asked.auto_pause else None,
        )
        await started(sandbox, receive=receive, have=have)
        await self._builds.wait_ready(sandbox, receive=receive, until=until)
        return 201, self._begun(sandbox), []

    async def _get(self, found: Sandbox | Paused) -> Answer:
        if isinstance(found, Paused):
            sandbox, end_at, state = found.sandbox, found.checkpoint.created_at, PAUSED
        else:
            sandbox, (end_at,), state = found, await self._deadlines.of([found]), RUNNING
        token = self._access.token(documents.id_of(sandbox), sandbox.tenant)
        about = {"alias": self._templates.alias(sandbox), "token": token, "domain": self._domain}
        return 200, documents.detail(sandbox, end_at=end_at, state=state, **about), []

    async def _kill(self, found: Sandbox | Paused) -> Answer:
        if isinstance(found, Paused):
            sandbox_id, tenant, was_paused = found.id, found.sandbox.tenant, True
            await self._pauses.revoke(found.checkpoint)
        else:
            sandbox_id, tenant, was_paused = documents.id_of(found), found.tenant, False
            await self._end(found)
            try:
                was_paused = await self._pauses.kill(tenant, sandbox_id)
            except Problem as problem:
                _log.warning("a killed sandbox's pause is kept: %s", problem, extra={"sandbox": found.id})
        # Only now: a gateway that continues it from here on learns of the kill.
        if was_paused and (begun := await self._serving.find_everywhere(sandbox_id, tenant)):
            await self._end(begun)
        return 204, None, []

    async def _end(self, sandbox: Sandbox) -> None:
        self._have.lifecycle.ends.delete(sandbox)
        await self._have.lifecycle.deleted_everywhere(sandbox)

    async def _pause(self, found: Sandbox | Paused, body: bytes) -> Answer:
        """Keep the files and end the sandbox; memory is lost, whatever the request says."""
        requests.read(body, requests.Pause)
        if isinstance(found, Paused):
            raise already_paused(found.id)
        await self._pauses.pause(found)
        return 204, None, []

    async def _timeout(self, sandbox: Sandbox, body: bytes) -> Answer:
        await self._deadlines.set(sandbox, requests.read(body, requests.Timeout).timeout)
        return 204, None, []

    async def _refresh(self, sandbox: Sandbox, body: bytes) -> Answer:
        seconds = requests.read(body, requests.Refresh).duration
        await self._deadlines.set(sandbox, 300 if seconds is None else seconds, only_later=True)
        return 204, None, []

    async def _connect(
        self, found: Sandbox | Paused, body: bytes, *, receive: Receive, who: Tenant
    ) -> Answer:
        """Answer as a create does; the timeout of a sandbox that runs may only become later."""
        timeout = requests.read(body, requests.Connect).timeout
        until = asyncio.get_running_loop().time() + CREATE_WAIT
        if isinstance(found, Paused):
            seconds = requests.checked_timeout(timeout)
            sandbox = await self._pauses.resume(found, timeout=seconds, receive=receive, who=who)
            await self._hand_out(sandbox, found.checkpoint, receive=receive, until=until)
            return 201, self._begun(sandbox), []
        if found.status is Status.PENDING:
            await self._have.directory.changed(found.id, timeout=HOLD)
            if found.status is not Status.RUNNING:
                raise Problem(
                    503, "the sandbox is still starting: try again", headers=[(b"retry-after", b"1")]
                )
        if (pause := await self._pauses.left_by(found)) is not None:
            try:  # the connect that began it had no answer, or has none yet
                await self._have.lifecycle.ends.orphans.hand_out(found)
            except SidecarError as error:
                raise Problem(
                    503, f"the sandbox does not answer: {error}", headers=[(b"retry-after", b"1")]
                ) from error
            await self._hand_out(found, pause, receive=receive, until=until)
        if timeout is not None:
            await self._deadlines.set(found, timeout, only_later=True)
        return 200, self._begun(found), []

    async def _hand_out(self, sandbox: Sandbox, pause: Checkpoint, *, receive: Receive, until: float) -> None:
        """Wait until a continued sandbox can be used, then forget its pause, unless its caller has left."""
        await self._builds.wait_ready(sandbox, receive=receive, until=until)
        if not has_hung_up(receive):
            await self._pauses.hand_out(sandbox, pause)

    async def _network(self, sandbox: Sandbox, body: bytes) -> Answer:
        await egress.put(sandbox, requests.policy_of(body), self._have)
        return 204, None, []

    async def _snapshot(self, sandbox: Sandbox, body: bytes) -> Answer:
        return 201, await self._snapshots.create(sandbox, body), []

    async def _found(self, sandbox_id: str, who: Tenant) -> Sandbox | Paused:
        """Return the caller's sandbox that runs or is paused. Raises Problem, ApiError."""
        wanted = SandboxId(sandbox_id)
        found = self._have.directory.current(wanted, who.name)
        if found is None and (paused := await self._pauses.find(who.name, wanted)):
            return paused
        found = found or await self._serving.find(wanted, who.name)
        sandbox = await owned(wanted if found is None else found.id, self._have, who)
        if not sandbox.live:
            raise Problem(404, f"the sandbox {wanted} was not found: it has ended: {sandbox.verdict}")
        if sandbox.id != wanted:
            note(sandbox=sandbox.id)
        return sandbox

    async def _running(self, sandbox_id: str, who: Tenant) -> Sandbox:
        """Return the caller's live sandbox. Raises Problem, ApiError."""
        found = await self._found(sandbox_id, who)
        if isinstance(found, Paused):
            raise Problem(404, f"the sandbox {found.id} was not found: it is paused: connect to it first")
        return found

    def _begun(self, sandbox: Sandbox) -> dict[str, Any]:
        tokens = self._access.tokens(documents.id_of(sandbox), sandbox.tenant)
        alias = self._templates.alias(sandbox)
        return documents.begun(sandbox, tokens=tokens, domain=self._domain, alias=alias)


_Action = Callable[[Control, Sandbox, bytes], Awaitable[Answer]]
_ACTIONS: dict[tuple[str, str], _Action] = {
    ("POST", "timeout"): Control._timeout,
    ("POST", "refreshes"): Control._refresh,
    ("PUT", "network"): Control._network,
    ("POST", "snapshots"): Control._snapshot,
}
