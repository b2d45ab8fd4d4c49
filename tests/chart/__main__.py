"""Makes what only tests of the chart need: Prometheus, Traefik, and definitions of the Gateway API; `python -m tests.chart`."""

from __future__ import annotations

from tests.chart import gateway_api
from tests.chart.prometheus import fetch
from tests.cluster import gobuild, versions
from tests.cluster.lock import exclusive

fetch()
gateway_api.fetch()
with exclusive():
    gobuild.build(names=gobuild.missing(versions.CHART_MODULES), modules=versions.CHART_MODULES)
