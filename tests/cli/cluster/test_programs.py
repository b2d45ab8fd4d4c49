"""The checks read what the programs print: metrics by the names of their page, and the log of a real sidecar."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot.cli.cluster import checks
from sandlot.cli.cluster.checks import webhooks
from sandlot.cli.cluster.finding import PROBLEM

from tests.cli.cluster.worlds import Cluster
from tests.metrics_page import documented
from tests.sidecar.support import Sidecar
from tests.waiting import until


def test_the_metrics_that_checks_read_are_documented() -> None:
    families = {**documented("Gateway"), **documented("Controller")}
    source = "".join(path.read_text() for path in Path(checks.__file__).parent.glob("*.py"))
    read = set(re.findall(r'"(sandlot_\w+)"', source))
    assert len(read) >= 4
    for name in read:
        family = name.removesuffix("_total")
        assert (families[family][0] == "counter") == name.endswith("_total")


@pytest.fixture
async def lonely() -> AsyncIterator[Sidecar]:
    """A sidecar whose gateway nobody has started."""
    made = Sidecar()
    try:
        await made.launch()
        yield made
        await made.webhooks.start()  # else its end waits a minute for a gateway
    finally:
        await made.close()


@pytest.mark.root
async def test_a_sidecar_that_reaches_no_gateway_is_found_by_its_log(lonely: Sidecar) -> None:
    await until(lambda: "webhook_failed" in lonely.log())
    cluster = Cluster()
    cluster.but(sidecar_logs={"i-1": lonely.log()}, now=time.time())
    found = next(one for one in webhooks.check(cluster.world) if one.name == "webhooks of sidecars")
    assert found.state == PROBLEM
    assert "No such file" in found.detail, "the socket of its gateway"
