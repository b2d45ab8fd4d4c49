"""Every create from a full pool hits it, however many came before it and hold their sandboxes."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import POOLED, filled
from tests.kubernetes.killing import warm_everywhere
from tests.kubernetes.pools import REPLACED
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE

SIZE = 3
CREATES = 5  # more than the pool holds: once the first of them was cold each time
VALUES = {
    # Where pods are reused, a claim is recorded only after ten seconds, and nothing takes its place before.
    "pools": {"default": {"size": SIZE, "template": {"image": IMAGE, **POOLED}, "reuse": REPLACED}},
    "controller.replicas": 1,
    # By a tenth of a core each, the 8 pods would fill the nodes to the last one, beside those of other releases.
    "sandboxes.pods.cpuShare": 0.02,
}


@pytest.mark.timeout(1800)  # the pods start one after the other
def test_more_creates_than_the_pool_holds_hit_it_each_time_that_it_is_full() -> None:
    assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in VALUES.items())
    with release_of_its_own("full", runtime="gvisor") as stack, ExitStack() as held:
        stack.install("--set-json", assignments)
        client = held.enter_context(Client(url=stack.url, api_key=stack.api_key))
        for number in range(CREATES):
            filled(stack, size=SIZE)
            warm_everywhere(stack, size=SIZE)
            box = held.enter_context(Sandbox.create(IMAGE, client=client, wait=180))
            assert (box.info.pool_hit, box.info.cold_reason) == (True, None), number
