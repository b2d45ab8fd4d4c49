"""A stub for one sidecar: the real one's decisions and webhooks, without a sandbox, a disk and timers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.verdicts import CommandVerdict, SandboxVerdict
from sandlot_sidecar import __version__
from sandlot_sidecar.core import ends
from sandlot_sidecar.core.ends import End
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import CONTRACT_PHASES, OWNED, InstanceState, Outcome
from sandlot_sidecar.core.record import Record
from sandlot_sidecar.server.claim import parse
from sandlot_sidecar.server.gateway import Gateway
from sandlot_sidecar.server.http import EITHER, INSTANCE, SANDBOX
from sandlot_sidecar.server.tasks import Tasks
from sandlot_sidecar.server.webhooks import CLAIM_TOLD_AFTER, Webhooks

from loadtests.cluster.stub_commands import StubCommands

HEARTBEAT = 30.0  # seconds, the controller's default for pods
_PATIENCE = 60.0  # seconds of retries of the `ended` webhook
_NEEDS = {  # whose token a route needs; the others: either's
    (b"GET", b"/v1/commands"): INSTANCE,
    (b"POST", b"/v1/claim"): INSTANCE,
    (b"POST", b"/v1/reset"): INSTANCE,
    (b"POST", b"/v1/end"): INSTANCE,
    (b"POST", b"/v1/exec"): SANDBOX,
    (b"POST", b"/v1/use"): SANDBOX,
}
_PROOF = {
    "processes": [],
    "upper_entries": 0,
    "files_equal": True,
    "mounts_equal": True,
    "network_equal": True,
    "ipc_entries": 0,
    "hostname_equal": True,
    "groups": 0,
    "differences": [],
}


class StubSidecar:
    """One instance, which is warm at once."""

    def __init__(
        self,
        name: str,
        token: str,
        *,
        template: str,
        commands: StubCommands,
        gateway: str | None,
        opened: Callable[[str, StubSidecar], None],
        closed: Callable[[str], object],
        exited: Callable[[str], None],
    ) -> None:
        """`template`: the key of its pod's. `gateway`: the URL of webhooks, or None for none. `opened` and `closed` get the
        token of each owner, `exited` the instance's name once it has ended.
        """
        self.name = name
        self.address: str | None = None
        self.former: str | None = None  # the last token that was closed
        self._token = token
        self._template = template
        self.life = InstanceState(Record())
        self.life.built()
        self._commands = commands
        self._opened, self._closed, self._exited = opened, closed, exited
        self._ready_at = self._last_active = time.time()
        self._told = False  # that it is ready
        self._tasks = Tasks()
        target = None if gateway is None else Gateway(gateway, instance_id=name, token=token)
        self._webhooks = Webhooks(target, heartbeat=HEARTBEAT, document=self.state)
        self._webhooks.on_unwanted = self._unwanted

    @property
    def owner(self) -> str | None:
        """The id of the sandbox that has not ended, if there is one."""
        claim = self.life.record.claim
        return claim["sandbox_id"] if claim is not None and self.life.phase in OWNED else None

    def ready(self, address: str) -> None:
        """Tell the gateway that it is ready, once; `address` is its pod's."""
        self.address = f"{address}:{SIDECAR_PORT}"
        if not self._told and not self.life.over:
            self._told, self._ready_at = True, time.time()
            self._webhooks.ready()

    def state(self) -> dict[str, Any]:
        """Return the contract's state document."""
        record = self.life.record
        claim = record.claim
        image = record.image
        return {
            "instance_id": self.name,
            "address": self.address,
            "generation": record.generation,
            "phase": CONTRACT_PHASES[self.life.phase],
            "claiming": self.life.claiming,
            "ready_at": self._ready_at,
            "bound_to": self.life.bound_to,
            "uses": self.life.uses,
            "version": __version__,
            "mounts_copies": True,
            "sandbox_id": claim["sandbox_id"] if claim else None,
            "claimed_at": record.claimed_at if claim else None,
            "deadline_at": record.deadline_at() if claim else None,
            "idle_timeout": claim["idle_timeout"] if claim else None,
            "last_active_at": self._last_active,
            "verdict": record.verdict,
            "message": record.message,
            "meta": claim["meta"] if claim else None,
            "egress": record.egress is not None,
            "user": claim["user"] if claim else None,
            "services": bool(claim and claim["services"]),
            "ops_running": self._commands.running(claim["sandbox_id"]) if claim else 0,
            "template": self._template,
            "image": image["id"] if image else None,
            "notes": [],
            "restoring": self.life.restoring,
            "start_command": {"state": "none", "exit_code": None},
        }

    def authorize(self, method: bytes, route: bytes, *, token: str) -> None:
        """Check the token in the same order as the sidecar's `Http`. Raises ApiError."""
        needs, claim = _NEEDS.get((method, route), EITHER), self.life.record.claim
        if needs is SANDBOX and claim is None:
            raise ApiError(409, "not_claimed", "this instance has no owner: claim it first")
        good = needs is not SANDBOX and token == self._token
        if needs is not INSTANCE and claim is not None:
            good = good or token == claim["token"]
        if not good:
            challenge = (("WWW-Authenticate", "Bearer"),)
            raise ApiError(401, "unauthorized", "the token is not valid here", headers=challenge)

    def answer(self, method: bytes, path: bytes, body: bytes) -> dict[str, Any]:
        """Answer an authorized request, but for commands. Raises ApiError."""
        route, _, query = path.partition(b"?")
        match method, route:
            case b"GET", b"/v1/state":
                return self.state()
            case b"GET", b"/v1/commands":
                asked = parse_qs(query.decode())
                self._check_owner(asked.get("of", [""])[0])
                return self._commands.listed(asked["of"][0])
            case b"POST", b"/v1/claim":
                self._claim(json.loads(body))
                return self.state()
            case b"POST", b"/v1/reset":
                proof = self._reset(json.loads(body))
                return {**self.state(), **proof}
            case b"POST", b"/v1/end":
                self._end_as_asked(json.loads(body))
                return self.state()
            case b"POST", b"/v1/use":
                self.use()
                return {}
            case _:
                raise ApiError(404, "no_such_route", f"no such route: {method.decode()} {route.decode()}")

    def use(self) -> str:
        """Note that the owner uses it; return the owner's id. Raises ApiError if it has ended."""
        self.life.gate()
        self._last_active = time.time()
        return self.life.owned()["sandbox_id"]

    def end(self, end: End, **conditions: Any) -> None:
        """End it, see `InstanceState.end`. Raises ApiError."""
        if self.life.end(end, **conditions) is not Outcome.NEWS:
            return
        claim = self.life.record.claim
        if claim is not None:
            self._commands.end(claim["sandbox_id"], verdict=end.cause)
        self._webhooks.stop()
        self._tasks.spawn(self._announce())

    def forget(self) -> None:
        """Send no more: the pod is gone."""
        self._webhooks.stop()
        claim = self.life.record.claim
        if claim is not None:
            self._closed(claim["token"])
            self._commands.end(claim["sandbox_id"], verdict=CommandVerdict.SANDBOX_ENDED)

    async def close(self) -> None:
        await self._webhooks.close()
        self._tasks.cancel()
        await self._tasks.wait()

    def _claim(self, body: dict[str, Any]) -> None:
        # Its node does not have the image's directory, which `parse` would look for.
        claim = {**parse({**body, "image": None}, {}), "image": body.get("image")}
        if not self.life.claim(claim, generation=body.get("generation"), now=time.time()):
            return
        if claim["image"] is not None:
            self.life.laid(claim["image"])
        self.life.record.egress = claim["egress"]
        self.life.claimed()
        self._last_active = time.time()
        self._opened(claim["token"], self)
        self._webhooks.claimed(after=CLAIM_TOLD_AFTER)

    def _reset(self, body: dict[str, Any]) -> dict[str, Any]:
        claim = self.life.record.claim
        keep = body.get("keep_claim", False)
        kept = self.life.reset(keep_claim=keep, generation=body.get("generation"), overlay=True)
        self._webhooks.stop()
        if claim is not None:
            self._commands.end(claim["sandbox_id"], verdict=CommandVerdict.SANDBOX_ENDED)
            if kept is None:
                self._closed(claim["token"])
        self.life.emptied()
        self.life.built()
        self._ready_at = time.time()
        self._webhooks.ready()
        return {"took_ms": 0.0, "proof": _PROOF, "equal": True}

    def _end_as_asked(self, body: dict[str, Any]) -> None:
        if body.get("after_owner") and self.life.retire():
            return
        end = End(body.get("verdict", SandboxVerdict.DELETED), body.get("message"))
        names = ("only_unclaimed", "only_of", "only_unused")
        self.end(end, **{name: body[name] for name in names if name in body})

    def _unwanted(self, told: dict[str, Any], verdict: str | None) -> None:
        owner = told["sandbox_id"]
        with suppress(ApiError):  # it has another owner since
            self.end(ends.unwanted(verdict), only_unclaimed=owner is None, only_of=owner)

    async def _announce(self) -> None:
        await self._webhooks.ended(patience=_PATIENCE)
        self._exited(self.name)

    def _check_owner(self, sandbox_id: str) -> None:
        if self.life.owned()["sandbox_id"] != sandbox_id:
            raise ApiError(409, "claimed", "this instance has another owner than the sandbox of the request")
