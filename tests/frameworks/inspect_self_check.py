"""Inspect's own conformance suite over the provider: run by pytest in Inspect's environment, not in the tree's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from sandlot.integrations.inspect import SandlotSandboxEnvironment as Provider

COMPOSE = "compose.yaml"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SandboxEnvironment]:
    environments = await Provider.sample_init("check", COMPOSE, {})
    yield environments["default"]
    await Provider.sample_cleanup("check", COMPOSE, environments, False)


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_env(shared: SandboxEnvironment) -> SandboxEnvironment:
    return shared
