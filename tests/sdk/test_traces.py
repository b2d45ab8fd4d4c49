"""A caller's OpenTelemetry context is in every request, and nothing is without one."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from sandlot import AsyncClient, AsyncSandbox, Client, Sandbox

from tests.sdk.service.server import Service

CONTEXT = SpanContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, False, TraceFlags(1))
SOURCE = Path(__file__).parent / "service"  # a directory of several files
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(url=service.url, api_key=service.api_key) as client:
        yield client


def use(client: Client, copy: Path) -> None:
    """Calls of each kind, also those of a copy's threads."""
    with Sandbox.create(client=client) as box:
        assert box.exec("echo out").stdout == "out\n"
        box.files.write("/tmp/traced", b"data")
        assert list(box.exec("echo out", stream=True))
        box.files.upload(SOURCE, "/tmp/copied")
        box.files.download("/tmp/copied", copy)


def sent(service: Service) -> set[str | None]:
    assert len(service.seen) >= 5
    return {seen.headers.get("traceparent") for seen in service.seen}


def test_the_active_span_is_in_every_request(service: Service, client: Client, tmp_path: Path) -> None:
    with trace.use_span(NonRecordingSpan(CONTEXT)):
        use(client, tmp_path / "copy")
    assert sent(service) == {TRACEPARENT}


async def test_it_is_also_in_those_of_the_async_client(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        with trace.use_span(NonRecordingSpan(CONTEXT)):
            async with await AsyncSandbox.create(client=client) as box:
                await box.exec("true")
    assert {seen.headers.get("traceparent") for seen in service.seen} == {TRACEPARENT}


def test_without_an_active_span_there_is_none(service: Service, client: Client, tmp_path: Path) -> None:
    use(client, tmp_path / "copy")
    assert sent(service) == {None}


def test_a_module_that_is_still_being_imported_is_none(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", types.ModuleType("opentelemetry.trace"))
    use(client, tmp_path / "copy")
    assert sent(service) == {None}


def test_the_sdk_never_imports_it() -> None:
    code = (
        "import sys; from sandlot import Sandbox; from sandlot._protocol import tracing\n"
        "with tracing.span('x'): assert not tracing.headers()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
