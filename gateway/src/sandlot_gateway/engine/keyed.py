"""Makes sure that one idempotency key brings up one sandbox, through whichever gateways its creates come."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.core.gateways import OtherGateways
from sandlot_gateway.core.owners import KeyAnswer, KeyHolder, KeyQuestion
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

_GIVES_WAY = SandboxId("~")  # sorts after every id: a question with it never wins
_TRIES, _PAUSE = 20, 0.05  # seconds
# Seconds for the last claims of dead gateways: longer than a search takes with 1,000 silent sidecars of 10,000.
_SEARCH, _SEARCH_PAUSE = 15.0, 0.1


class KeyedCreates:
    """Asks all other gateways before this one brings up a sandbox for a key.

    When two gateways ask each other at the same time, the smaller sandbox id wins. A gateway whose questions are all
    answered has decided, and answers later questions with its sandbox. `works_on`: whether this gateway is bringing up
    the sandbox of this id. `follows`: whether it follows that sandbox, and may have to go on with it. `asked`: called
    with a live sandbox for whose key a caller waits at another gateway.
    """

    def __init__(
        self,
        *,
        directory: Directory,
        others: OtherGateways | None,
        works_on: Callable[[SandboxId], bool],
        follows: Callable[[SandboxId], bool],
        asked: Callable[[Sandbox], None],
    ) -> None:
        self._directory = directory
        self._others = others
        self._works_on = works_on
        self._follows = follows
        self._asked = asked
        self._gateway = secrets.token_hex(8)
        # our sandbox -> another gateway's sandbox that wins over it
        self._undecided: dict[SandboxId, SandboxId | None] = {}

    @property
    def has_others(self) -> bool:
        return self._others is not None

    async def ask(self, sandbox: Sandbox, *, waits: bool = True, is_new: bool = False) -> KeyAnswer:
        """Ask who holds the sandbox's key; without a holder this gateway brings the sandbox up.

        `waits`: a caller here waits for it. `is_new`: the caller does not ask again.
        """
        if self._others is None or sandbox.spec.key is None:
            return KeyAnswer((), all_heard=True)
        question = KeyQuestion(sandbox.tenant, sandbox.spec.key, sandbox.id, self._gateway, waits=waits)
        self._undecided[sandbox.id] = None
        try:
            answer = await self._others.holder_of_key(question)
            if is_new:
                answer = await self._searched(sandbox, question, answer)
        finally:
            first = self._undecided.pop(sandbox.id)
        first = self._reported(sandbox) or first
        if not answer.holders and first is not None:
            return KeyAnswer((KeyHolder(first),), all_heard=answer.all_heard)
        return answer

    async def _searched(self, sandbox: Sandbox, question: KeyQuestion, answer: KeyAnswer) -> KeyAnswer:
        """Ask again once dead gateways' last claims have been looked for, unless somebody has the key before."""
        assert self._others is not None
        clock = asyncio.get_running_loop().time
        until = clock() + _SEARCH

        def waits() -> bool:
            return (
                sandbox.live
                and self._undecided[sandbox.id] is None
                and self._reported(sandbox) is None
                and self._directory.get(sandbox.id) is sandbox
                and clock() < until
            )

        while answer.searching and not answer.holders and waits():
            await asyncio.sleep(_SEARCH_PAUSE)
            # Else each create would ask all gateways all the time.
            if clock() >= until or not self._others.is_searching():
                answer = await self._others.holder_of_key(question)
        return answer

    def _reported(self, sandbox: Sandbox) -> SandboxId | None:
        """Return a dead gateway's sandbox with the key that a sidecar or a record has reported meanwhile."""
        assert sandbox.spec.key is not None
        known = self._directory.by_key(sandbox.tenant, sandbox.spec.key)
        return known.id if known is not None and known.id != sandbox.id else None

    async def agreed(self, sandbox: Sandbox, holder: KeyHolder) -> KeyHolder:
        """Return the final holder of the key: among three gateways, `holder` may itself yield to another."""
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
        """Answer another gateway's question. None: this gateway has no objection."""
        if self._others is not None:
            self._others.asked_by(question.gateway)
        known = self._directory.by_key(question.tenant, question.key)
        if known is None:
            return None
        if not known.live:
            return KeyHolder(
                known.id, known.verdict, known.message, exit_code=known.exit_code, ended_at=known.ended_at
            )
        if question.waits:
            self._asked(known)
        if question.sandbox_id != known.id and self._follows(known.id):
            # Else a retry would begin another sandbox while no gateway works on this one.
            return KeyHolder(known.id)
        if known.id in self._undecided:
            if (question.sandbox_id, question.gateway) >= (known.id, self._gateway):
                return KeyHolder(known.id)
            before = self._undecided[known.id]
            self._undecided[known.id] = min(before or question.sandbox_id, question.sandbox_id)
            return None
        # For a sandbox that this gateway only follows, the gateway that brings it up answers.
        return KeyHolder(known.id) if known.status is Status.RUNNING or self._works_on(known.id) else None
