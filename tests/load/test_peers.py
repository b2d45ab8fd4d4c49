"""A published agent of another system, run in a sandbox of ours and called as the load tests do."""

from __future__ import annotations

import time
from types import ModuleType

import pytest
from sandlot import AsyncClient, AsyncSandbox

from loadtests.load import peers_here, peers_in_pod
from loadtests.load.baselines import Baselines
from loadtests.load.peers import PEERS, Peer, peers
from loadtests.load.profile import Baseline
from tests.prime.environments import IndexUnreachable, environment
from tests.prime.not_installed import not_installed
from tests.stack import private_stack

SWEREX = PEERS["swerex"]


@pytest.mark.clients
@pytest.mark.parametrize(
    "way", [peers_here, peers_in_pod], ids=["called directly", "called from its sandbox"]
)
async def test_an_agent_answers_and_leaves_with_its_sandbox(way: ModuleType) -> None:
    try:
        environment(SWEREX.package, SWEREX.version)
    except IndexUnreachable as error:
        not_installed(SWEREX.package, error)
    taken: Baselines = {}
    broken = Peer("swe-rex", SWEREX.version, "swerex-remote", options=("--wrong",))
    with private_stack() as stack:
        async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
            plan = Baseline(seconds=2.0, callers=4)
            begun = time.monotonic()
            await peers(
                taken,
                plan,
                lambda: AsyncSandbox.create(client=client),
                measure=way.measure,
                which={"swerex": SWEREX, "broken": broken},
            )
            elapsed = time.monotonic() - begun
            assert await AsyncSandbox.list(client=client) == []
    # How many calls there is time for is the machine's doing; one caller makes them one after the other.
    assert len(taken["swerex"].times) > 1
    assert 0 < sum(taken["swerex"].times) < elapsed
    assert bool(taken["swerex"].rates) == (way is peers_here)
    assert not taken["swerex"].missing
    assert len(taken["sandlot"].times) > 1
    assert taken["sandlot"].rates[0] > 0
    assert taken["broken"].times == []
    assert "ended with 2" in taken["broken"].missing
