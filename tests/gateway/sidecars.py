"""Sidecars for tests: real servers that keep the contract's claim, end, reset and reads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sandlot_contract.ids import InstanceId
from sandlot_gateway.data.pool import DialError, HttpPool, UpstreamError

from tests.gateway.unix_server import UnixServer


class StubSidecar(UnixServer):
    """One instance. `webhook` is the address of a gateway's socket; without it nobody is told anything."""

    def __init__(
        self, *, instance_id: InstanceId, token: str, directory: Path, webhook: str | None = None
    ) -> None:
        super().__init__(directory / f"{instance_id[-12:]}.sock")
        self.instance_id = instance_id
        self.token = token
        self.webhook = webhook
        self.generation = 1
        self.phase = "warm"
        self.claim: dict[str, Any] | None = None
        self.claimed_at: float | None = None
        self.bound_to: str | None = None
        self.uses = 0
        self.verdict: str | None = None
        self.told: str | None = None  # of its sandbox, by the last answer to a webhook
        self.message: str | None = None
        self.files: dict[str, str] = {}
        self.logs = ""
        self.ops_answer: tuple[int, Any] = (404, {"error": "no_such_route"})  # to one that begins
        self.commands_answer: tuple[int, Any] = (
            404,
            {"error": "no_such_route"},
        )  # as of before there were any
        self.claims_seen = 0
        self.claiming = False
        self.ends_seen = 0
        self.owners: list[str] = []
        self.before_claim: Callable[[dict[str, Any]], Any] | None = None
        self.lose_answers = 0  # answer to so many claims is lost after it took effect
        self.used = False
        self.holds_policies = True  # False: of before there were any
        self.knows_users = True  # False: of before a claim could name one
        self.links_services = True  # False: of before there were any
        self.lays_images = True  # False: of before a claim could name one
        self.left_image: str | None = None  # that a claim which failed has laid
        self.listens: set[int] = set()  # ports in the sandbox
        self.reset_equal = True
        self.reset_status = 200
        self.hold: asyncio.Event | None = None  # commands answer when it is set
        self.held = False  # a command has waited for it
        self.hold_end: asyncio.Event | None = None  # it ends when it is set
        self.hold_state: asyncio.Event | None = None  # it tells its state when it is set
        self.deadline_at: Any = None  # None: as of before there were any
        self.state_answer: bytes | None = None  # instead of its state
        self.states_seen = 0
        self.layer_answer: tuple[int, Any] = (200, b"archive")  # to a request for its files
        self.hold_layer: asyncio.Event | None = None  # it sends its files when it is set
        self.layers_seen = 0
        self._pool = HttpPool()

    async def close(self) -> None:
        await super().close()
        await self._pool.close()

    def state(self) -> dict[str, Any]:
        claim = self.claim or {}
        return {
            "instance_id": self.instance_id,
            "generation": self.generation,
            "phase": self.phase,
            "claiming": self.claiming,
            "version": "test",
            "sandbox_id": claim.get("sandbox_id"),
            "claimed_at": self.claimed_at,
            "bound_to": self.bound_to,
            "uses": self.uses,
            "verdict": self.verdict,
            "message": self.message,
            "meta": claim.get("meta"),
            **({"deadline_at": self.deadline_at} if self.deadline_at is not None else {}),
            **({"egress": claim.get("egress") is not None} if self.holds_policies else {}),
            **({"user": claim.get("user")} if self.knows_users else {}),
            **({"services": bool(claim.get("services"))} if self.links_services else {}),
            **({"image": (claim.get("image") or {}).get("id", self.left_image)} if self.lays_images else {}),
            "notes": ["a stub"],
            "start_command": {"state": "none", "exit_code": None},
        }

    def end(self, verdict: str, message: str | None = None) -> None:
        """The sidecar ends by itself (deadline, idle, ...)."""
        if self.phase != "ended":
            self.phase, self.verdict, self.message = "ended", verdict, message
            self.push("ended")

    def push(self, event: str) -> asyncio.Task[int | None]:
        body = json.dumps({"event": event, "sent_at": time.time(), "address": self.address, **self.state()})
        return self._own(self.send(body.encode()))

    async def send(self, body: bytes, *, signature: str | None = None) -> int | None:
        """POST one webhook, repeated while the gateway cannot be reached; the status of its answer."""
        if self.webhook is None:
            return None
        signed = "sha256=" + hmac.new(self.token.encode(), body, hashlib.sha256).hexdigest()
        headers = [
            ("x-sandlot-instance", self.instance_id),
            ("x-sandlot-sender", hmac.new(self.token.encode(), b"webhook", hashlib.sha256).hexdigest()),
            ("x-sandlot-signature", signature or signed),
            ("content-type", "application/json"),
        ]
        while True:
            try:
                answer = await self._pool.fetch(
                    self.webhook, "POST", "/internal/sidecar", headers=headers, body=body
                )
            except (DialError, UpstreamError):
                await asyncio.sleep(0.02)
                continue
            self.told = answer.header("x-sandlot-verdict")
            if answer.status != 503:
                return answer.status

    async def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        token = headers.get("authorization", "").removeprefix("Bearer ")
        sandbox_token = (self.claim or {}).get("token")
        if token not in (self.token, sandbox_token):
            return 401, {"error": "unauthorized"}
        match parts.path:
            case "/v1/state":
                state = self.state() if self.state_answer is None else self.state_answer
                self.states_seen += 1
                if self.hold_state is not None:
                    await self.hold_state.wait()
                return 200, state
            case "/v1/deadline" if self.deadline_at is not None:
                told = json.loads(body)
                at = time.time() + told["timeout"]
                self.deadline_at = max(at, self.deadline_at) if told["only_later"] else at
                return 200, self.state()
            case "/v1/checkpoint":
                self.layers_seen += 1
                if self.hold_layer is not None:
                    await self.hold_layer.wait()
                return self.layer_answer
            case "/v1/restore":
                return 200, {}
            case "/v1/claim":
                return await self._claim(json.loads(body))
            case "/v1/end":
                told = json.loads(body)
                self.ends_seen += 1
                if self.hold_end is not None:
                    await self.hold_end.wait()
                owner = (
                    self.claim["sandbox_id"] if self.claim is not None and self.phase == "claimed" else None
                )
                kept = told.get("only_unclaimed") or told.get("only_of", owner) != owner
                if owner is not None and (kept or (told.get("only_unused") and self.used)):
                    return 409, {"error": "claimed", "sandbox_id": owner}
                self.end(told["verdict"], told.get("message"))
                return 200, self.state()
            case "/v1/use":
                self.used = True
                return 200, {}
            case "/v1/orphan":
                told = json.loads(body)
                self._own(self._end_if_unused(told["sandbox_id"], told["grace"]))
                return 200, {}
            case "/v1/reset":
                told = json.loads(body)
                if told.get("generation", self.generation) != self.generation:
                    return 409, {"error": "stale_generation"}
                return self._reset(keep=told["keep_claim"])
            case "/v1/logs":
                return 200, self.logs.encode()[-int(query["tail"]) :]
            case "/v1/commands" | "/v1/commands/output":
                return self.commands_answer
            case "/v1/tcp":  # says whose it is, then sends back what it gets
                if int(query["port"]) not in self.listens:
                    return 502, {"error": "refused"}
                return 101, self.instance_id.encode()
            case "/v1/ops":
                return self.ops_answer
            case "/v1/read-file":
                if query["path"] not in self.files:
                    return 404, {"error": "not_found", "message": "no such file"}
                content = self.files[query["path"]]
                return 200, {"content": content, "size": len(content), "total_size": len(content)}
            case "/v1/exec":
                if self.hold is not None:
                    self.held = True
                    await self.hold.wait()
                return 200, {"stdout": json.loads(body)["command"], "stderr": "", "exit_code": 0}
        return 404, {"error": "no_such_route"}

    async def _end_if_unused(self, sandbox_id: str, grace: float) -> None:
        await asyncio.sleep(grace)
        if not self.used and self.claim is not None and self.claim["sandbox_id"] == sandbox_id:
            self.end("deleted")

    async def _claim(self, claim: dict[str, Any]) -> tuple[int, Any]:
        self.claims_seen += 1
        if self.before_claim is not None:
            refusal = self.before_claim(claim)
            if asyncio.iscoroutine(refusal):
                self.claiming = True
                try:
                    refusal = await refusal
                finally:
                    self.claiming = False
            if refusal is not None:
                return refusal
        if self.phase in ("ended", "failed"):
            return 410, {"error": "ended", "verdict": self.verdict}
        if claim["generation"] != self.generation:
            return 409, {"error": "stale_generation"}
        if self.claim is None and self.uses and claim["tenant"] != self.bound_to:
            return 409, {"error": "bound", "bound_to": self.bound_to}
        if self.claim is None:
            self.claim, self.phase, self.claimed_at = claim, "claimed", time.time()
            self.used = False
            self.bound_to = claim["tenant"]
            self.uses += 1
            self.owners.append(claim["sandbox_id"])
        elif claim != self.claim:
            return 409, {"error": "already_claimed"}
        if self.lose_answers:
            self.lose_answers -= 1
            return 0, None
        return 200, self.state()

    def _reset(self, *, keep: bool) -> tuple[int, Any]:
        if self.reset_status != 200:
            return self.reset_status, {"error": "no_overlay", "message": "the root is no overlay"}
        self.generation += 1
        if not keep:
            self.claim, self.phase, self.claimed_at = None, "warm", None
            self.push("ready")
        differences = [] if self.reset_equal else ["file layers/base/etc/hosts: content"]
        proof = {"processes": [], "upper_entries": 0, "differences": differences}
        return 200, {"equal": self.reset_equal, "took_ms": 1.0, "proof": proof, **self.state()}


def new_instance_id() -> InstanceId:
    return InstanceId(f"i-{secrets.token_hex(8)}")


@contextlib.asynccontextmanager
async def sidecars(count: int, directory: Path, *, token: Callable[[InstanceId], str]):
    made = []
    for _ in range(count):
        instance_id = new_instance_id()
        made.append(StubSidecar(instance_id=instance_id, token=token(instance_id), directory=directory))
        await made[-1].start()
    try:
        yield made
    finally:
        for sidecar in made:
            await sidecar.close()
