"""Sees to it that one idempotency key brings up one sandbox, whichever gateways its creates come to."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.core.backend import OtherGateways
from sandlot_gateway.core.owners import KeyAnswer, KeyHolder, KeyQuestion
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

_GIVES_WAY = SandboxId("~")  # greater than every id: whoever asks so takes part in no decision
_TRIES, _PAUSE = 20, 0.05  # seconds


class KeyedCreates:
    """Every gateway asks all others before it brings up a sandbox for a key.

    Of two that ask each other at the same time the one with the smaller id goes on, which each tells the other. One
    whose questions are all answered has decided: whoever asks later is told of its sandbox. `works_on`: this gateway
    brings up the sandbox of this id.
    """

    def __init__(
        self,
        *,
        directory: Directory,
        others: OtherGateways | None,
        works_on: Callable[[SandboxId], bool],
    ) -> None:
        self._directory = directory
        self._others = others
        self._works_on = works_on
        self._gateway = secrets.token_hex(8)
        # Of our sandboxes, each with another gateway's that goes before it.
        self._undecided: dict[SandboxId, SandboxId | None] = {}

    @property
    def has_others(self) -> bool:
        return self._others is not None

    async def ask(self, sandbox: Sandbox) -> KeyAnswer:
        """Whose the sandbox's key is; no holder: it is for this gateway to bring the sandbox up."""
        if self._others is None or sandbox.spec.key is None:
            return KeyAnswer((), all_heard=True)
        question = KeyQuestion(sandbox.tenant, sandbox.spec.key, sandbox.id, self._gateway)
        self._undecided[sandbox.id] = None
        try:
            answer = await self._others.holder_of_key(question)
        finally:
            first = self._undecided.pop(sandbox.id)
        # Of another gateway that has died, its sidecar or its promise may have told meanwhile.
        known = self._directory.by_key(sandbox.tenant, sandbox.spec.key)
        if known is not None and known.id != sandbox.id:
            first = known.id
        if not answer.holders and first is not None:
            return KeyAnswer((KeyHolder(first),), all_heard=answer.all_heard)
        return answer

    async def agreed(self, sandbox: Sandbox, holder: KeyHolder) -> KeyHolder:
        """Who holds its key in the end, where `holder` seemed to: of three gateways, that one may give way to another."""
        assert self._others is not None
        assert sandbox.spec.key is not None
        question = KeyQuestion(sandbox.tenant, sandbox.spec.key, _GIVES_WAY, self._gateway)
        for _ in range(_TRIES):
            answer = await self._others.holder_of_key(question)
            holder = answer.holder or holder
            if len(answer.holders) <= 1:
                break
            await asyncio.sleep(_PAUSE)
        return holder

    def answer(self, question: KeyQuestion) -> KeyHolder | None:
        """What another gateway is told. None: as far as this one knows, it may go on."""
        known = self._directory.by_key(question.tenant, question.key)
        if known is None:
            return None
        if not known.live:
            return KeyHolder(
                known.id, known.verdict, known.message, exit_code=known.exit_code, ended_at=known.ended_at
            )
        if known.id in self._undecided:
            if (question.sandbox_id, question.gateway) >= (known.id, self._gateway):
                return KeyHolder(known.id)
            before = self._undecided[known.id]
            self._undecided[known.id] = min(before or question.sandbox_id, question.sandbox_id)
            return None
        # One that it only waits for is told of by the gateway that brings it up.
        return KeyHolder(known.id) if known.status is Status.RUNNING or self._works_on(known.id) else None
