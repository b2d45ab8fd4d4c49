"""The real API server for the tests of this directory, and a scripted one with a client to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sandlot_kube.client import KubeClient

from tests.kube.apiserver import apiserver
from tests.kube.scripted import Scripted, scripted

__all__ = ["apiserver"]


@pytest.fixture
async def server_and_client() -> AsyncIterator[tuple[Scripted, KubeClient]]:
    async with scripted() as both:
        yield both
