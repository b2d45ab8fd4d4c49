"""docs/metrics.md says what a sidecar's /v1/metrics prints."""

from __future__ import annotations

import pytest

from tests import metrics_page

pytestmark = pytest.mark.root


async def test_the_page_tells_every_metric(make) -> None:
    box = await make()
    metrics_page.check("Sidecar", (await box.instance("GET", "/v1/metrics")).text)
