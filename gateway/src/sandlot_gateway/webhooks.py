"""What sidecars tell the gateway: ready, heartbeat, claimed, ended; each signed with the instance's token."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.phases import Event, Phase
from sandlot_contract.sidecar import WEBHOOK_SIGNATURE
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend, LeftAlone, Unavailable
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.slots import Heard, Loss
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.ends import Ends
from sandlot_gateway.engine.learning import Learning
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.tokens import Tokens

_log = logging.getLogger(__name__)
_EVENTS: dict[str, Event] = {event: event for event in Event}
_UNTOLD: dict[str, SandboxVerdict] = {
    Phase.FAILED: SandboxVerdict.SANDBOX_LOST
}  # where a document has no verdict


class WebhookFault(StrEnum):
    """What is wrong with a webhook, as it is counted."""

    OTHER = "other"  # an event that is not known here
    UNSIGNED = "unsigned"
    MALFORMED = "malformed"
    TOO_MANY = "too_many"
    TWO_OWNERS = "two_owners"  # it names another owner than the slot has


class _Document(msgspec.Struct):
    """The fields of a state document that the gateway acts on; the rest passes through untyped."""

    instance_id: InstanceId
    phase: str
    generation: int
    event: str = Event.HEARTBEAT
    sandbox_id: SandboxId | None = None
    ready_at: float | None = None
    verdict: str | None = None
    message: str | None = None


class Answer(NamedTuple):
    """To one webhook. `verdict`: how the sandbox has ended, for a sidecar that has to go and does not know it yet."""

    status: int
    verdict: str | None = None


class Webhooks:
    """Gives an HTTP status for each webhook; a 410 tells the sidecar that nobody wants it."""

    def __init__(
        self,
        *,
        tokens: Tokens,
        backend: Backend,
        supply: Supply,
        directory: Directory,
        ends: Ends,
        learning: Learning,
        counted: Callable[[Event | WebhookFault], None] = lambda event: None,
        readied: Callable[[float], None] = lambda seconds: None,
        heard: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._tokens = tokens
        self._backend = backend
        self._supply = supply
        self._directory = directory
        self._ends = ends
        self._learning = learning
        self._counted = counted
        self._readied = readied
        self._heard = heard

    def is_sender(self, instance_id: InstanceId, credential: str) -> bool:
        """Whether a webhook's headers come from this instance's sidecar; only then its body is read."""
        wanted = self._tokens.webhook_sender(instance_id)
        return len(instance_id) <= 128 and hmac.compare_digest(wanted.encode(), credential.encode())

    def receive(self, instance_id: InstanceId, signature: str, body: bytes) -> Answer:
        """Check and act.

        401: not signed by this instance; 400: no state document; 410: nobody wants it; 503: say it again.
        """
        wanted = (
            WEBHOOK_SIGNATURE
            + hmac.new(self._tokens.instance(instance_id).encode(), body, hashlib.sha256).hexdigest()
        )
        if not hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace")):
            return self._refuse(
                instance_id, WebhookFault.UNSIGNED, "its signature is not of this body and its token"
            )
        try:
            state = msgspec.json.decode(body)
            document = msgspec.convert(state, _Document)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return self._refuse(instance_id, WebhookFault.MALFORMED, f"it is no state document: {error}")
        if document.instance_id != instance_id:
            return self._refuse(
                instance_id, WebhookFault.MALFORMED, f"it is about {document.instance_id[:128]!r}"
            )
        self._counted(_EVENTS.get(document.event, WebhookFault.OTHER))
        status = 410
        try:
            instance = self._backend.hear(instance_id, state)
        except Unavailable:
            instance, status = None, 503
        except LeftAlone:
            return Answer(200)
        if instance is None:
            # An end needs no instance to be recorded; everything else of an unknown one is not wanted.
            if document.event == Event.ENDED:
                self.act(None, document, state)
                return Answer(200)
            return Answer(status, self._verdict_of(document.sandbox_id) if status == 410 else None)
        self._heard(instance.address)
        self.act(instance, document, state)
        return Answer(200)

    def _verdict_of(self, sandbox_id: SandboxId | None) -> str | None:
        """Without it the commands that still run there would be told of an end that the sandbox did not have."""
        sandbox = None if sandbox_id is None else self._directory.get(sandbox_id)
        return None if sandbox is None else sandbox.verdict

    def _refuse(self, instance_id: InstanceId, fault: WebhookFault, why: str) -> Answer:
        self._counted(fault)
        _log.warning("a webhook was refused: %s", why, extra={"instance": instance_id})
        return Answer(401 if fault is WebhookFault.UNSIGNED else 400)

    def found(self, instance: Instance, state: dict[str, Any]) -> None:
        """A sidecar from before this gateway's start, with its state document."""
        try:
            document = msgspec.convert(state, _Document)
        except msgspec.ValidationError as error:
            _log.warning("a state document cannot be read: %s", error, extra={"instance": instance.id})
            self._ends.discard(instance)
            return
        self.act(instance, document, state)

    def act(self, instance: Instance | None, document: _Document, state: dict[str, Any]) -> None:
        if document.event == Event.ENDED or document.phase in (Phase.ENDED, Phase.FAILED):
            verdict = document.verdict or _UNTOLD.get(document.phase, SandboxVerdict.DELETED)
            loss = Loss(verdict, document.message, _exit_code(state))
            self._ends.gone(document.instance_id, loss, heard=True)
        elif instance is not None and document.phase == Phase.CLAIMED:
            before = self._supply.slots.owner(instance.id)
            heard = self._supply.heard_owned(instance, document.generation, document.sandbox_id)
            if heard is Heard.IMPOSSIBLE:
                self._counted(WebhookFault.TWO_OWNERS)
                _log.error("a slot has two owners: %s and %s", before, document.sandbox_id)
            elif heard is not Heard.LATE:
                # Not where it is LATE, as of a claim that is given back: a record would make it the sandbox's.
                if before is not None and before != document.sandbox_id:
                    self._ends.over_elsewhere(before, instance.id)
                self._learning.owned(instance, state)
        elif instance is not None and document.phase == Phase.WARM:
            self._warm(instance, document)

    def _warm(self, instance: Instance, document: _Document) -> None:
        before = self._supply.slots.owner(instance.id)
        if self._supply.heard_warm(instance, document.generation) is Heard.NEWS:
            if before is not None:
                self._ends.over_elsewhere(before, instance.id)
            self._backend.ready(instance.id)
            if document.event == Event.READY and document.ready_at is not None:
                self._readied(max(0.0, time.time() - document.ready_at))


def _exit_code(state: dict[str, Any]) -> int | None:
    start_command = state.get("start_command")
    code = start_command.get("exit_code") if isinstance(start_command, dict) else None
    return code if isinstance(code, int) else None
