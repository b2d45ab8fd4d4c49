"""Calls a sidecar's API (docs/sidecar-contract.md): claim, end, reset, egress, logs, read-file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

import msgspec
from sandlot_contract.ids import SandboxId
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway import logs
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.reuse import Binding
from sandlot_gateway.data.pool import Answer, DialError, HttpPool, UpstreamError
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.sidecar_requests import json_object
from sandlot_gateway.egress import Egress
from sandlot_gateway.tracing.requests import add_sidecar
from sandlot_gateway.tracing.span import Kind
from sandlot_gateway.tracing.trace import Stage, now, stage


class ClaimOutcome(StrEnum):
    CLAIMED = "claimed"
    TAKEN = "taken"  # it has another owner
    STALE = "stale"  # it is another generation
    BOUND = "bound"  # another tenant used it before
    GONE = "gone"  # ended, failed
    UNREACHABLE = "unreachable"  # nothing was sent
    UNCERTAIN = "uncertain"  # sent, but no usable answer
    REFUSED = "refused"  # the claim itself is invalid


class EndAnswer(StrEnum):
    ENDED = "ended"
    OWNED = "owned"  # the end's conditions exclude its owner, so it keeps running
    OTHERS = "others"  # and that is not `only_of`; an older sidecar does not say so
    UNKNOWN = "unknown"  # unreachable
    # Unreachable by TLS from here: with another certificate it may serve other gateways.
    UNTRUSTED = "untrusted"

    @property
    def unheard(self) -> bool:
        """Whether the sidecar did not get the end, as far as known."""
        return self in (EndAnswer.UNKNOWN, EndAnswer.UNTRUSTED)

    @property
    def kept(self) -> bool:
        """Whether the instance keeps running for its owner."""
        return self in (EndAnswer.OWNED, EndAnswer.OTHERS)


# Bytes of an answer to a look. 500 commands whose characters all have the longest escapes are just below.
_MOST_SEEN = 8 << 20
# Accepted; an older sidecar, whose sandbox has its deadline and idle timeout; another owner; ended.
_ORPHANED = frozenset((200, 404, 409, 410))


class SidecarError(Exception):
    """Raised when a sidecar does not answer, or not as the contract says."""


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The result of a claim. `field`, `message`: what is invalid in a refused one. `binding`: the tenant of a BOUND one."""

    outcome: ClaimOutcome
    state: dict[str, Any]
    field: str | None = None
    message: str = ""
    binding: Binding | None = None


class Sidecars:
    """Calls sidecars with timeouts (seconds), so that no caller waits for one that has stopped answering."""

    def __init__(self, pool: HttpPool, *, claim_timeout: float = 10.0, call_timeout: float = 10.0) -> None:
        self._pool = pool
        self._claim_timeout = claim_timeout
        self._call_timeout = call_timeout

    async def claim(self, instance: Instance, claim: dict[str, Any]) -> ClaimAnswer:
        """Claim an instance. Never raises for a sidecar's failure; retries once after a lost answer (idempotent)."""
        with stage("sandlot.claim", kind=Kind.CLIENT) as step:
            step.attributes["sandlot.instance.id"] = instance.id
            answer = await self._claim(instance, claim, step)
            step.attributes["sandlot.claim.outcome"] = answer.outcome
            if answer.outcome in (ClaimOutcome.UNREACHABLE, ClaimOutcome.UNCERTAIN):
                step.error = answer.outcome
            return answer

    async def _claim(self, instance: Instance, claim: dict[str, Any], step: Stage) -> ClaimAnswer:
        body = msgspec.json.encode(claim)
        answer: Answer | None = None
        problem = ""
        sent = False
        began = 0
        headers = [*step.header(), *_request_id()]
        for _ in range(2):
            began = now()
            try:
                answer = await self._ask(
                    "POST", instance, "/v1/claim", body, headers=headers, timeout=self._claim_timeout
                )
            except DialError as error:
                return ClaimAnswer(
                    ClaimOutcome.UNCERTAIN if sent else ClaimOutcome.UNREACHABLE, {}, message=str(error)
                )
            except UpstreamError as error:
                sent = True
                problem = str(error)
                continue
            if answer.status < 500:
                break
            sent = True
            problem = f"status {answer.status}"
        if answer is None or answer.status >= 500:
            return ClaimAnswer(ClaimOutcome.UNCERTAIN, {}, message=problem)
        if step.trace is not None:
            add_sidecar(step.trace, answer.headers, name="claim", begin=began, end=now(), parent=step.span_id)
        return _claim_answer(answer)

    async def end(
        self,
        instance: Instance,
        *,
        verdict: str,
        message: str | None = None,
        only_of: SandboxId | None = None,
        only_unused: bool = False,
    ) -> EndAnswer:
        """Ask the sidecar to end unless another sandbox than `only_of` owns it, or with `only_unused` one that is used."""
        wanted = {"message": message, "only_of": only_of, "only_unused": only_unused or None}
        body = {"verdict": verdict} | {name: value for name, value in wanted.items() if value is not None}
        answer = await self._end(instance, body)
        if isinstance(answer, Answer) and answer.status == 400:  # an older sidecar without this verdict
            answer = await self._end(instance, {**body, "verdict": SandboxVerdict.SANDBOX_LOST})
        return _end_answer(answer, only_of=only_of)

    async def end_unclaimed(self, instance: Instance) -> EndAnswer:
        """Ask the sidecar to end unless it has an owner, which only it knows."""
        body = {"verdict": SandboxVerdict.DELETED, "only_unclaimed": True}
        return _end_answer(await self._end(instance, body))

    async def _end(self, instance: Instance, body: dict[str, Any]) -> Answer | EndAnswer:
        """Send an end; return the answer, or what it means that there is none."""
        content = msgspec.json.encode(body)
        try:
            return await self._post(instance, "/v1/end", content, timeout=self._call_timeout)
        except DialError as error:
            return EndAnswer.UNTRUSTED if error.tls else EndAnswer.UNKNOWN
        except UpstreamError:
            return EndAnswer.UNKNOWN

    async def reset(self, instance: Instance) -> Answer:
        """Reset the instance under the same claim. Raises SidecarError."""
        body = b'{"keep_claim":true}'
        try:
            return await self._post(instance, "/v1/reset", body, timeout=self._call_timeout)
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error

    async def egress(self, instance: Instance, policy: Egress | None = None) -> Answer:
        """Get the egress policy, or replace it with `policy`. Raises SidecarError."""
        try:
            if policy is None:
                return await self._ask("GET", instance, "/v1/egress", b"", timeout=self._call_timeout)
            body = msgspec.json.encode(policy.rules())
            return await self._ask("PUT", instance, "/v1/egress", body, timeout=self._call_timeout)
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error

    async def usage(self, instance: Instance) -> Answer:
        """Get what the sandbox uses now; 404 from an earlier build. Raises SidecarError."""
        try:
            return await self._ask("GET", instance, "/v1/usage", b"", timeout=self._call_timeout)
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error

    async def set_deadline(
        self, instance: Instance, sandbox_id: SandboxId, *, seconds: float, only_later: bool
    ) -> Answer:
        """Have the sandbox end `seconds` from now; `only_later`: unless it is to end later. Raises SidecarError."""
        wanted = {"sandbox_id": sandbox_id, "timeout": seconds, "only_later": only_later}
        body = msgspec.json.encode(wanted)
        try:
            return await self._ask("PUT", instance, "/v1/deadline", body, timeout=self._call_timeout)
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error

    async def get(self, route: Route, path: str, query: dict[str, str | int]) -> Answer:
        """Send a GET with the sandbox token. Raises SidecarError."""
        target = f"{path}?{urlencode(query)}"
        headers = [("authorization", f"Bearer {route.token}")]
        try:
            return await self._pool.fetch(
                route.address, "GET", target, headers=headers, timeout=self._call_timeout
            )
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error

    async def look(self, instance: Instance, path: str, query: dict[str, str | int]) -> Answer:
        """Send a GET with the instance token, which is no use of the sandbox. Raises SidecarError."""
        target = f"{path}?{urlencode(query)}"
        try:
            return await self._ask("GET", instance, target, b"", timeout=self._call_timeout, most=_MOST_SEEN)
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error

    async def note_use(self, route: Route) -> None:
        """Tell the sidecar that a caller has the sandbox. Raises SidecarError."""
        headers = [("authorization", f"Bearer {route.token}")]
        try:
            answer = await self._pool.fetch(
                route.address, "POST", "/v1/use", headers=headers, timeout=self._call_timeout
            )
        except (DialError, UpstreamError) as error:
            raise SidecarError(str(error)) from error
        if answer.status not in (200, 404):  # 404: an older sidecar, which keeps no note
            raise SidecarError(f"status {answer.status}")

    async def orphan(self, instance: Instance, sandbox_id: SandboxId, *, grace: float) -> bool:
        """Have the sidecar end the sandbox in `grace` seconds unless it is used by then; return whether it has decided."""
        body = msgspec.json.encode({"sandbox_id": sandbox_id, "grace": grace})
        try:
            answer = await self._post(instance, "/v1/orphan", body, timeout=self._call_timeout)
        except (DialError, UpstreamError):
            return False
        return answer.status in _ORPHANED

    async def _post(self, instance: Instance, path: str, body: bytes, *, timeout: float) -> Answer:
        return await self._ask("POST", instance, path, body, timeout=timeout)

    async def _ask(
        self,
        method: str,
        instance: Instance,
        path: str,
        body: bytes,
        *,
        headers: Iterable[tuple[bytes, bytes]] = (),
        timeout: float,
        most: int | None = None,
    ) -> Answer:
        authorized = [
            (b"authorization", f"Bearer {instance.token}"),
            (b"content-type", b"application/json"),
            *headers,
        ]
        return await self._pool.fetch(
            instance.address, method, path, headers=authorized, body=body, timeout=timeout, most=most
        )


def _request_id() -> list[tuple[bytes, bytes]]:
    """Return the header with the id of the current request, for the sidecar's log; none that is no header value."""
    value = logs.request_id.get()
    return [(b"x-request-id", value.encode())] if value and value.isascii() and value.isprintable() else []


def document(answer: Answer) -> dict[str, Any]:
    """Return the answer's JSON object, or {} if it has none."""
    return json_object(answer.body)


def _end_answer(answer: Answer | EndAnswer, *, only_of: SandboxId | None = None) -> EndAnswer:
    if isinstance(answer, EndAnswer):
        return answer
    if answer.status == 409:
        of_others = only_of is not None and document(answer).get("sandbox_id", only_of) != only_of
        return EndAnswer.OTHERS if of_others else EndAnswer.OWNED
    return EndAnswer.ENDED if answer.status == 200 else EndAnswer.UNKNOWN


def _claim_answer(answer: Answer) -> ClaimAnswer:
    state = document(answer)
    message = str(state.get("message") or state.get("error") or f"status {answer.status}")
    if answer.status == 200:
        return ClaimAnswer(ClaimOutcome.CLAIMED, state)
    if answer.status == 409 and state.get("error") == "bound":
        binding = Binding(str(state.get("bound_to") or ""), uses=1)
        return ClaimAnswer(ClaimOutcome.BOUND, state, message=message, binding=binding)
    if answer.status == 409:
        stale = state.get("error") == "stale_generation"
        return ClaimAnswer(ClaimOutcome.STALE if stale else ClaimOutcome.TAKEN, state, message=message)
    if answer.status == 410:
        return ClaimAnswer(ClaimOutcome.GONE, state, message=message)
    if answer.status in (400, 413):
        return ClaimAnswer(ClaimOutcome.REFUSED, state, field=state.get("field"), message=message)
    # 401 and the like: this is not the expected sidecar.
    return ClaimAnswer(ClaimOutcome.GONE, state, message=message)
