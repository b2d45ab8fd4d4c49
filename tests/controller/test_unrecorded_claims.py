"""A claimed pod without a record whose sidecar is silent is deleted, unless its record comes while it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot_controller.act.unrecorded_claims import UnrecordedClaims
from sandlot_controller.settings import Settings

from tests.controller.played import POD, Part, running, settings_in
from tests.waiting import until

GRACE = 0.4  # seconds; the pods are looked at four times as often


class Play(Part):
    def __init__(self, settings: Settings, *, reuse: str | None = "tenant") -> None:
        super().__init__(settings, annotations={} if reuse is None else {"sandlot.dev/reuse": reuse})
        self.unrecorded = UnrecordedClaims(self.world, **self.given)
        self.world.claimed_without_record(POD, 2)

    async def asked(self, times: int) -> None:
        """Wait until the sidecar was asked so many times more, and its answers have been used."""
        before = self.sidecars.asked
        await until(lambda: self.sidecars.asked >= before + times)


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    play = Play(settings_in(tmp_path, record_grace=GRACE))
    async with running(play.unrecorded.run()):
        yield play


async def test_a_pod_whose_sidecar_is_silent_is_deleted(play: Play) -> None:
    play.sidecars.silent = True
    await play.asked(2)
    assert play.deletion.deleted == []
    play.now += GRACE
    await until(lambda: play.deletion.deleted == [POD])
    assert play.sidecars.ended == []


@pytest.mark.parametrize("annotation", ["tenant", None], ids=["reused", "not reused"])
async def test_a_pod_that_refuses_the_controller_s_certificate_is_asked_until_it_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, annotation: str | None
) -> None:
    play = Play(settings_in(tmp_path, record_grace=GRACE), reuse=annotation)
    play.sidecars.untrusted = True
    play.sidecars.owner_id = "sb-2"
    caplog.set_level("INFO")
    async with running(play.unrecorded.run()):
        play.now += 2 * GRACE
        await until(lambda: caplog.text.count("trying again: TLS") > 2)
        assert play.deletion.deleted == []
        play.sidecars.untrusted = False
        if annotation is not None:
            await play.asked(2)
            play.now += GRACE
        await until(lambda: play.deletion.deleted == [POD])
    assert len(play.sidecars.ended) == 1


async def test_a_pod_whose_record_comes_while_its_sidecar_is_silent_stays(play: Play) -> None:
    play.sidecars.silent = True
    await play.asked(2)
    play.sidecars.while_asked.append(lambda: play.record(2))
    play.now += GRACE
    await until(lambda: not play.world.unrecorded_since)
    await asyncio.sleep(2 * GRACE)
    assert play.deletion.deleted == []


async def test_the_record_of_an_earlier_owner_does_not_release_the_pod(play: Play) -> None:
    play.sidecars.owner_id = "sb-2"
    play.record(1)
    await play.asked(2)
    assert play.world.unrecorded_since == {POD: 0.0}
    play.now += GRACE
    await until(lambda: play.sidecars.ended == ["sb-2"])
    assert play.deletion.deleted == [POD]
