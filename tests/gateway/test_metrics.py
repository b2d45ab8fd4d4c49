"""docs/metrics.md says what a gateway's /metrics prints."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from tests import metrics_page
from tests.gateway.conftest import OPERATOR, Running


async def test_the_page_tells_every_metric(box: Running) -> None:
    assert (await box.client.put("/api/v1/pools/warm", json={"size": 1, "cpu_cores": 1})).status_code == 200
    await box.create()
    metrics_page.check("Gateway", await box.metrics())


async def test_rejections_are_counted_from_none(box: Running) -> None:
    """Otherwise an alert would not see the first ones."""
    printed = await box.metrics()
    assert 'sandlot_rejected_total{route="exec",scope="gateway"} 0.0' in printed
    assert 'sandlot_rejected_total{route="expose",scope="sandbox"} 0.0' in printed


async def test_the_answer_has_the_gateways_time(box: Running) -> None:
    """`sandlot doctor --cluster` compares it with the API server's."""
    answer = await box.client.get("/metrics", headers=box.as_tenant(OPERATOR))
    assert abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()) < 60
