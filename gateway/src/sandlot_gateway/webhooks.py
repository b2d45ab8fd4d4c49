"""Handles sidecars' webhooks (ready, heartbeat, claimed, ended), signed with the instance token."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.phases import Event, Phase
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend, LeftAlone, Unavailable
from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.reuse import Binding
from sandlot_gateway.core.slot import Loss, ReportOutcome
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.adoption import Adoption
from sandlot_gateway.engine.ends import Ends
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.tokens import Tokens

_log = logging.getLogger(__name__)
_EVENTS: dict[str, Event] = {event: event for event in Event}
_UNTOLD: dict[str, SandboxVerdict] = {
    Phase.FAILED: SandboxVerdict.SANDBOX_LOST
}  # for documents without a verdict


class WebhookFault(StrEnum):
    """Faults of webhooks, as counted in the metrics."""

    OTHER = "other"  # an unknown event
    UNSIGNED = "unsigned"
    MALFORMED = "malformed"
    TOO_MANY = "too_many"
    TWO_OWNERS = "two_owners"  # it names another owner than the slot's


class _Document(msgspec.Struct):
    """The fields of a state document that the gateway uses; the rest stays untyped."""

    instance_id: InstanceId
    phase: str
    generation: int
    event: str = Event.HEARTBEAT
    sandbox_id: SandboxId | None = None
    ready_at: float | None = None
    bound_to: str | None = None
    uses: int = 0
    verdict: str | None = None
    message: str | None = None

    @property
    def binding(self) -> Binding:
        return Binding(self.bound_to, self.uses)


class Answer(NamedTuple):
    """The answer to a webhook. `verdict`: how the sandbox has ended, for a sidecar that does not know it yet."""

    status: int
    verdict: str | None = None


class Webhooks:
    """Verifies and applies webhooks; answers 410 to one whose instance the gateway has released."""

    def __init__(
        self,
        *,
        tokens: Tokens,
        backend: Backend,
        supply: Supply,
        directory: Directory,
        ends: Ends,
        adoption: Adoption,
        counted: Callable[[Event | WebhookFault], None] = lambda event: None,
        readied: Callable[[float], None] = lambda seconds: None,
        heard: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._tokens = tokens
        self._backend = backend
        self._supply = supply
        self._directory = directory
        self._ends = ends
        self._adoption = adoption
        self._counted = counted
        self._readied = readied
        self._heard = heard

    def proof(self, instance_id: InstanceId, credential: str) -> str | None:
        """Return what shows the instance's sidecar that a gateway answers.

        None if the credential is not the sidecar's; then the body is not read.
        """
        return self._tokens.webhook_answer(instance_id, credential) if len(instance_id) <= 128 else None

    def receive(self, instance_id: InstanceId, signature: str, body: bytes) -> Answer:
        """Verify and apply a webhook.

        401: not signed by this instance; 400: not a state document; 410: instance released; 503: retry later.
        """
        key_id = self._tokens.webhook_key(instance_id, signature, body)
        if key_id is None:
            return self._refuse(
                instance_id,
                WebhookFault.UNSIGNED,
                "its signature does not match its body and the instance token",
            )
        try:
            state = msgspec.json.decode(body)
            document = msgspec.convert(state, _Document)
        except NOT_JSON as error:
            return self._refuse(instance_id, WebhookFault.MALFORMED, f"it is not a state document: {error}")
        if document.instance_id != instance_id:
            return self._refuse(
                instance_id,
                WebhookFault.MALFORMED,
                f"it is for another instance, {document.instance_id[:128]!r}",
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
            # An end is recorded even for an unknown instance; other events of one are rejected.
            if document.event == Event.ENDED:
                self.act(None, document, state)
                return Answer(200)
            return Answer(status, self._verdict_of(document.sandbox_id) if status == 410 else None)
        self._heard(instance.address)
        if instance.key_id is not None and instance.key_id != key_id:  # its pod is not known yet
            instance.key_id, instance.token = key_id, self._tokens.instance(instance_id, key_id)
        self.act(instance, document, state)
        return Answer(200)

    def _verdict_of(self, sandbox_id: SandboxId | None) -> str | None:
        """Return the sandbox's verdict, so that commands still running there are not reported with another end."""
        sandbox = None if sandbox_id is None else self._directory.get(sandbox_id)
        return None if sandbox is None else sandbox.verdict

    def _refuse(self, instance_id: InstanceId, fault: WebhookFault, why: str) -> Answer:
        self._counted(fault)
        _log.warning("webhook rejected: %s", why, extra={"instance": instance_id})
        return Answer(401 if fault is WebhookFault.UNSIGNED else 400)

    def found(self, instance: Instance, state: dict[str, Any]) -> None:
        """Apply the state document of a sidecar from before this gateway's start."""
        try:
            document = msgspec.convert(state, _Document)
        except msgspec.ValidationError as error:
            _log.warning(
                "cannot parse a state document: %s; the instance is discarded",
                error,
                extra={"instance": instance.id},
            )
            self._ends.unreadable(instance)
            return
        self.act(instance, document, state)

    def act(self, instance: Instance | None, document: _Document, state: dict[str, Any]) -> None:
        if document.event == Event.ENDED or document.phase in (Phase.ENDED, Phase.FAILED):
            verdict = document.verdict or _UNTOLD.get(document.phase, SandboxVerdict.DELETED)
            loss = Loss(verdict, document.message, _exit_code(state))
            if instance is not None:
                self._learn_owner(instance, document, state, loss)
                slot = self._supply.slots.get(instance.id)
                is_awaited = (
                    slot is not None and slot.hold is not None and slot.sandbox_id == document.sandbox_id
                )
                claim = self._adoption.claim_in(state, loss) if is_awaited else None
                self._ends.gone(document.instance_id, loss, heard=True, claim=claim)
            else:
                self._adoption.ended(document.instance_id, state, loss)
        elif instance is not None and document.phase == Phase.CLAIMED:
            self._owned(instance, document, state)
        elif instance is not None and document.phase == Phase.WARM:
            self._warm(instance, document)

    def _learn_owner(
        self, instance: Instance, document: _Document, state: dict[str, Any], loss: Loss
    ) -> None:
        """Learn from the report of an end whose end it is: an earlier report may have gone to another gateway."""
        if self._adoption.is_news(document.sandbox_id, loss):
            self._owned(instance, document, state)
            return
        slot = self._supply.slots.get(instance.id)
        owner = self._supply.slots.owner(instance.id)
        if slot is not None and owner is not None and slot.generation < document.generation:
            self._ends.over_elsewhere(owner, instance.id)
        self._supply.slots.overtaken(instance.id, document.generation)

    def _owned(self, instance: Instance, document: _Document, state: dict[str, Any]) -> None:
        before = self._supply.slots.owner(instance.id)
        heard = self._supply.report_owned(
            instance, document.generation, document.sandbox_id, document.binding
        )
        if heard is ReportOutcome.IMPOSSIBLE:
            self._counted(WebhookFault.TWO_OWNERS)
            _log.error("a slot has two owners: %s and %s", before, document.sandbox_id)
        elif heard is not ReportOutcome.LATE:
            # Not if LATE, as for a released claim: a record would make the instance the sandbox's.
            if before is not None and before != document.sandbox_id:
                self._ends.over_elsewhere(before, instance.id)
            self._adoption.owned(instance, state)

    def _warm(self, instance: Instance, document: _Document) -> None:
        before = self._supply.slots.owner(instance.id)
        if self._supply.report_warm(instance, document.generation, document.binding) is ReportOutcome.NEWS:
            if before is not None:
                self._ends.over_elsewhere(before, instance.id)
            self._backend.ready(instance.id)
            if document.event == Event.READY and document.ready_at is not None:
                self._readied(max(0.0, time.time() - document.ready_at))


def _exit_code(state: dict[str, Any]) -> int | None:
    start_command = state.get("start_command")
    code = start_command.get("exit_code") if isinstance(start_command, dict) else None
    return code if isinstance(code, int) else None
