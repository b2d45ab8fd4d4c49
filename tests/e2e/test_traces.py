"""One trace from a caller of the SDK through gateway and sidecar, as a collector gets it, and its id in all logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import Collector, Received, collector
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

# A trainer with OpenTelemetry of its own, which knows nothing of Sandlot's.
CALLER = """
import json, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sandlot import Sandbox

provider = TracerProvider(resource=Resource({"service.name": "trainer"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[1])))
trace.set_tracer_provider(provider)
with trace.get_tracer("trainer").start_as_current_span("rollout") as span:
    box = Sandbox.create()
    result = box.exec("sleep 0.05; env; cat /proc/1/environ")
    trace_id = f"{span.get_span_context().trace_id:032x}"
provider.shutdown()
print(json.dumps({"trace_id": trace_id, "sandbox": box.id, "stdout": result.stdout}))
"""
# Each span below its parent.
TREE = {
    "rollout": None,
    "trainer sandlot.create": "rollout",
    "sandlot.create": "trainer sandlot.create",
    "create sandlot.queue": "sandlot.create",
    "sandlot.claim": "sandlot.create",
    "sandlot.sidecar.claim": "sandlot.claim",
    "trainer sandlot.exec": "rollout",
    "sandlot.exec": "trainer sandlot.exec",
    "exec sandlot.queue": "sandlot.exec",
    "sandlot.forward": "sandlot.exec",
    "sandlot.sidecar.exec": "sandlot.forward",
    "sandlot.sidecar.queue": "sandlot.sidecar.exec",
    "sandlot.sidecar.spawn": "sandlot.sidecar.exec",
    "sandlot.sidecar.run": "sandlot.sidecar.exec",
}
CLOCK = 1_000_000  # ns between two readings of a clock
LATE = 2_000_000_000  # ns until a gateway next runs that has sent its response, on a loaded machine


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    with collector() as found:
        yield found


@pytest.fixture(scope="module")
def stack(traces: Collector) -> Iterator[Stack]:
    options = (
        "--pool",
        "warm=1",
        "--trace-endpoint",
        traces.url,
        "--access-log",
        "1",
        "--log-level",
        "debug",
    )
    with private_stack(*options) as stack:
        yield stack


def call(stack: Stack, traces: Collector) -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, "-c", CALLER, f"{traces.url}/v1/traces"],
        env={**os.environ, "SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def named(spans: list[Received]) -> dict[str, Received]:
    """The spans by the names in TREE: two have the same in trainer and gateway, two in create and command."""
    by_id = {span.span_id: span for span in spans}
    found: dict[str, Received] = {}
    for span in spans:
        name = span.name
        if name == "sandlot.queue":
            name = f"{by_id[span.parent_id].name.removeprefix('sandlot.')} {name}"
        elif span.service == "trainer" and name != "rollout":
            name = f"trainer {name}"
        assert name not in found, name
        found[name] = span
    return found


def test_a_create_and_a_command_are_one_trace_from_sdk_to_sidecar(stack: Stack, traces: Collector) -> None:
    told = call(stack, traces)
    trace_id = told["trace_id"]
    wanted = set(TREE)
    wait_until(lambda: len(traces.of_trace(trace_id)) >= len(wanted))
    spans = named(traces.of_trace(trace_id))
    assert set(spans) - wanted <= {"sandlot.start", "sandlot.connect", "sandlot.prepare_image"}
    for name, parent in TREE.items():
        span = spans[name]
        if parent is None:
            assert span.parent_id == ""
            continue
        above = spans[parent]
        assert span.parent_id == above.span_id, name
        late = LATE if above.service != span.service == "sandlot-gateway" else CLOCK
        assert above.begin - CLOCK <= span.begin <= span.end <= above.end + late, name
    services = {name: span.service for name, span in spans.items()}
    assert services["sandlot.exec"] == services["sandlot.forward"] == "sandlot-gateway"
    assert services["sandlot.sidecar.run"] == services["sandlot.sidecar.claim"] == "sandlot-sidecar"
    run = spans["sandlot.sidecar.run"]
    assert (run.end - run.begin) / 1e9 >= 0.05
    assert {span.error for span in spans.values()} == {""}
    assert spans["sandlot.create"].attributes["sandlot.sandbox.id"] == told["sandbox"]
    assert spans["sandlot.exec"].attributes["http.response.status_code"] == 200

    # User code sees nothing of it.
    assert trace_id not in told["stdout"]

    # The id is in the lines of both.
    gateway = [json.loads(line) for line in stack.log().splitlines() if trace_id in line]
    assert {"control request", "request"} <= {line["message"] for line in gateway}
    assert all(line["trace_id"] == trace_id and line["request"] for line in gateway)
    requests = {line["request"] for line in gateway}
    assert spans["sandlot.exec"].attributes["sandlot.request.id"] in requests
    assert spans["sandlot.create"].attributes["sandlot.request.id"] in requests
    sidecar = [
        json.loads(line)
        for file in Path(stack.state_dir).glob("instances/*/sidecar.log")
        for line in file.read_text().splitlines()
        if trace_id in line
    ]
    assert {"claimed", "op_ended"} <= {line["event"] for line in sidecar}
    assert {line["request"] for line in sidecar} <= requests
