"""Inspect's own checks of a provider, all of them, on the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.frameworks.test_inspect import test_inspect_s_own_checks
from tests.kubernetes.frameworks.tools_image import IMAGE
from tests.prime.server import Server

__all__ = ["test_inspect_s_own_checks"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(server: Server) -> Server:
    """With sandboxes in which users can be made."""
    return replace(server, image=IMAGE.reference)
