"""Fetches Prometheus for the tests of alerts and dashboards: `python -m tests.chart`."""

from __future__ import annotations

from tests.chart.prometheus import fetch

fetch()
