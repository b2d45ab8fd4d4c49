"""Installs what the tests of the web console need, Debian's Chromium and its driver: `python -m tests.console`."""

from __future__ import annotations

from tests.cluster.debian import ensure_packages
from tests.cluster.versions import BROWSER_PACKAGES
from tests.console.browser import driver

ensure_packages(BROWSER_PACKAGES)
driver()
