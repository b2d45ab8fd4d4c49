"""docs/metrics.md says what a controller's /metrics prints."""

from __future__ import annotations

from sandlot_controller.health import serving
from sandlot_controller.metrics import Metrics

from tests import metrics_page, plain_http


async def test_the_page_tells_every_metric() -> None:
    async with (
        serving(
            host="127.0.0.1", port=0, metrics=Metrics(), alive=lambda: None, trouble=lambda: None
        ) as port,
        plain_http.async_client() as client,
    ):
        metrics_page.check("Controller", (await client.get(f"http://127.0.0.1:{port}/metrics")).text)
