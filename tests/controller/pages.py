"""A controller that may never work, and what its log and its pages for kubelet and Prometheus say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from sandlot_controller.controller import Controller

from tests import plain_http
from tests.waiting import until


@asynccontextmanager
async def started(controller: Controller) -> AsyncIterator[Controller]:
    running = asyncio.create_task(controller.run())
    try:
        await until(lambda: controller.port or running.done())
        yield controller
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.wait([running])


async def page(controller: Controller, name: str) -> httpx.Response:
    async with plain_http.async_client() as client:
        return await client.get(f"http://127.0.0.1:{controller.port}/{name}")


async def shows(controller: Controller, resource: str, failing: bool) -> bool:
    """Whether the metric tells this of a resource."""
    metric = f'sandlot_controller_watch_failing{{resource="{resource}"}}'
    return f"{metric} {float(failing)}" in (await page(controller, "metrics")).text


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Return the warnings and errors with this text."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and text in record.getMessage()
    ]
