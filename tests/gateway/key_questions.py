"""Questions of a key to other gateways: one, its answers, and polls of sidecars that count."""

from __future__ import annotations

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.core.owners import KeyAnswer, KeyHolder, KeyQuestion

from tests.gateway.other_gateways import Other

SANDBOX = new_sandbox_id(0.0)
QUESTION = KeyQuestion("alpha", "key", SANDBOX, "gateway")
HOLDER = KeyHolder(new_sandbox_id(0.0))
NO_HOLDER = KeyAnswer((), all_heard=True)
NOT_ALL_HEARD = KeyAnswer((), all_heard=False)
SEARCHING = KeyAnswer((), all_heard=False, searching=True)


@pytest.fixture(autouse=True)
def long_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search does, for longer than a test takes."""
    monkeypatch.setattr("sandlot_gateway.backends.kubernetes.search._COUNTS", 3600.0)


class Looks:
    """How often sidecars were polled for the last claims of a dead gateway."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


def nothing() -> None:
    """Ignore that the news are told."""


async def answering_and_silent(others: list[Other]) -> tuple[Other, Other]:
    answers, silent = others
    await answers.start()
    await silent.start()
    silent.fall_silent()
    return answers, silent
