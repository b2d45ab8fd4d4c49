"""Fetches what the tests of the chart need besides programs that Go builds: Prometheus, and definitions of the Gateway API."""

from __future__ import annotations

from tests.chart import gateway_api
from tests.chart.prometheus import fetch

fetch()
gateway_api.fetch()
