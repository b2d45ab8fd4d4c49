"""Traces are off by default, and a collector that is down, slow or broken costs no request, only counted spans."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sandlot_gateway import logs
from sandlot_gateway.metrics import Metrics
from sandlot_gateway.settings import Settings
from sandlot_gateway.tracing.exporter import Exporter
from sandlot_gateway.tracing.span import Kind, Service, Span

from tests.collector import collector
from tests.gateway.conftest import KEY, Running, running
from tests.ports import free_port
from tests.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
OF_A_CREATE = {"sandlot.create", "sandlot.queue", "sandlot.claim"}


async def create(box: Running, **headers: str) -> None:
    answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host"}, headers=headers)
    assert answer.status_code == 201, answer.text


async def spans(box: Running) -> dict[str, float]:
    """The counts of spans by outcome."""
    families = text_string_to_metric_families(await box.metrics())
    (family,) = (family for family in families if family.name == "sandlot_trace_spans")
    return {
        sample.labels["outcome"]: sample.value for sample in family.samples if sample.name.endswith("_total")
    }


async def test_without_an_endpoint_nothing_is_traced(state_dir, machine) -> None:
    async with running(state_dir, machine) as box:
        await create(box, **TRACEPARENT)
        assert set((await spans(box)).values()) == {0.0}


def test_the_gateway_loads_no_exporter_by_itself() -> None:
    """The extra need not be installed."""
    code = "import sys, sandlot_gateway.serve; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "sandlot_gateway.tracing.setup" in loaded
    assert "opentelemetry.sdk" not in loaded
    assert "opentelemetry.exporter" not in loaded


async def test_a_collector_gets_a_create_and_its_steps(state_dir, machine) -> None:
    with collector() as found:
        async with running(state_dir, machine, trace_endpoint=found.url) as box:
            await create(box)  # without a caller's decision
            await create(box, traceparent="00-nonsense-00f067aa0ba902b7-01")
            await create(box, **TRACEPARENT)
            await until(lambda: {span.name for span in found.spans} >= OF_A_CREATE)
        assert {span.trace_id for span in found.spans} == {TRACE}
        root = next(span for span in found.spans if span.name == "sandlot.create")
        assert root.parent_id == "00f067aa0ba902b7"
        assert root.attributes["http.response.status_code"] == 201


async def test_a_pipelined_create_is_not_in_the_trace_of_the_one_before(state_dir, machine, caplog) -> None:
    body = b'{"docker_image": "host"}'
    head = f"POST /api/v1/sandbox HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    caplog.handler.setFormatter(logs.JsonFormatter())  # it formats in the context of the request
    caplog.set_level("DEBUG", "sandlot_gateway.edge")
    with collector() as found:
        async with running(state_dir, machine, trace_endpoint=found.url) as box:
            url = urlsplit(box.url)
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            traced = f"{head}traceparent: {TRACEPARENT['traceparent']}\r\n\r\n".encode() + body
            writer.write(traced + f"{head}connection: close\r\n\r\n".encode() + body)
            async with asyncio.timeout(30):
                assert (await reader.read()).count(b"HTTP/1.1 201 ") == 2
            writer.close()
    assert [span.name for span in found.spans].count("sandlot.create") == 1
    assert [span.name for span in found.spans].count("sandlot.claim") == 1
    lines = [line for line in caplog.text.splitlines() if '"control request"' in line]
    assert ['"trace_id"' in line for line in lines] == [True, False]


async def test_a_create_that_fails_is_an_error_of_its_span(state_dir, machine) -> None:
    with collector() as found:
        async with running(state_dir, machine, trace_endpoint=found.url, max_waiting=0) as box:
            machine.capacity = 0
            body = {"docker_image": "host"}
            answer = await box.client.post("/api/v1/sandbox", json=body, headers=TRACEPARENT)
            assert answer.status_code == 503, answer.text
        (root,) = [span for span in found.spans if span.name == "sandlot.create"]
        assert root.error == "status 503"
        assert root.attributes["http.response.status_code"] == 503


async def test_a_stop_exports_the_last_spans(state_dir, machine) -> None:
    with collector() as found:
        async with running(state_dir, machine, trace_endpoint=found.url, trace_ratio=1.0) as box:
            await create(box)
        assert {span.name for span in found.spans} >= OF_A_CREATE


async def test_a_collector_that_refuses_costs_no_request_and_its_spans_are_counted(
    state_dir, machine, caplog
) -> None:
    with collector() as found:
        found.status = 400  # at which OpenTelemetry's exporter does not try again
        async with running(state_dir, machine, trace_endpoint=found.url) as box:
            await create(box, **TRACEPARENT)

            async def failed() -> bool:
                return (await spans(box))["export_failed"] >= len(OF_A_CREATE)

            await until(failed)
            assert (await spans(box))["exported"] == 0
            found.status = 200
            await create(box, **TRACEPARENT)
            await until(lambda: {span.name for span in found.spans} >= OF_A_CREATE)
    texts = [record.getMessage() for record in caplog.records if "traces" in record.getMessage()]
    assert len(texts) == 2, texts
    assert re.search(r"cannot export traces to http://.*/v1/traces: .*400", texts[0])
    assert "again" in texts[1]


async def test_a_collector_that_is_down_costs_no_request(state_dir, machine) -> None:
    async with running(state_dir, machine, trace_endpoint=f"http://127.0.0.1:{free_port()}") as box:
        async with asyncio.timeout(30):
            await create(box, **TRACEPARENT)
        metrics = box.gateway.metrics
    exported = metrics.registry.get_sample_value("sandlot_trace_spans_total", {"outcome": "exported"})
    failed = metrics.registry.get_sample_value("sandlot_trace_spans_total", {"outcome": "export_failed"})
    assert exported == 0.0
    assert failed is not None
    assert failed >= len(OF_A_CREATE)


async def test_spans_whose_export_a_stop_ends_are_counted_by_then() -> None:
    metrics = Metrics()
    exporter = Exporter(f"http://127.0.0.1:{free_port()}", counted=metrics)
    exporter.add(Span("one", 1, 2, 0, 0, 1, Kind.SERVER, Service.GATEWAY, {}, None))
    await exporter.close(timeout=1.0)
    outcome = {"outcome": "export_failed"}
    assert metrics.registry.get_sample_value("sandlot_trace_spans_total", outcome) == 1.0


async def test_spans_beyond_the_queue_are_dropped_and_counted(state_dir, machine) -> None:
    with collector() as found:
        found.held.clear()  # it takes a request and answers none
        async with running(
            state_dir, machine, trace_endpoint=found.url, trace_ratio=1.0, trace_limit=10**6
        ) as box:
            await create(box)
            await until(lambda: found.exports)
            for _ in range(4200):
                trace = box.gateway.tracing.enter(b"", tenant="alpha")
                assert trace is not None
                trace.finish("filler", begin=trace.begun, attributes={}, error=None)
            await create(box)
            assert (await spans(box))["queue_full"] > 100
            found.held.set()


async def test_no_route_without_a_credential_leaves_a_span(state_dir, machine) -> None:
    with collector() as found:
        async with running(state_dir, machine, trace_endpoint=found.url, trace_ratio=1.0) as box:
            answer = await box.client.post(
                "/api/v1/sandbox",
                json={"docker_image": "host"},
                headers={"Authorization": f"Bearer not-{KEY}", **TRACEPARENT},
            )
            assert answer.status_code == 401
        assert found.spans == []


@pytest.mark.parametrize("value", ["collector:4318", "ftp://collector", "http:///v1"])
def test_an_endpoint_is_a_url(value: str) -> None:
    with pytest.raises(ValueError, match="trace_endpoint"):
        Settings(trace_endpoint=value)
