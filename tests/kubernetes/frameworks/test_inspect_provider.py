"""Inspect's own checks of a provider, on the cluster."""

from __future__ import annotations

import pytest

from tests.frameworks.test_inspect import test_inspect_s_own_checks

__all__ = ["test_inspect_s_own_checks"]
pytestmark = pytest.mark.slow
