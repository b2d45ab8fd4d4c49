"""A trainer with OpenTelemetry of its own, which knows nothing of Sandlot's, and the trace of its create and its command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.collector import Collector, Received
from tests.waiting import wait_until

_TRAINER = """
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
    box = Sandbox.create(**json.loads(sys.argv[2]))
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
# Spans of what not every create or command needs.
MAYBE = {"sandlot.start", "sandlot.connect", "sandlot.prepare_image"}


def train(*, url: str, api_key: str, collector: str, **create: Any) -> dict[str, str]:
    """Create a sandbox with these arguments, run a command, and leave it running.

    Returns `trace_id`, `sandbox` (its id), and `stdout`: what the command and its PID 1 have in their environments.
    """
    run = subprocess.run(
        [sys.executable, "-c", _TRAINER, f"{collector}/v1/traces", json.dumps(create)],
        env={**os.environ, "SANDLOT_URL": url, "SANDLOT_API_KEY": api_key},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def all_spans(collector: Collector, trace_id: str) -> dict[str, Received]:
    """The spans of a trainer's trace by the names in TREE, once all of these have arrived."""

    def named() -> dict[str, Received]:
        return _named(collector.of_trace(trace_id))

    wait_until(lambda: TREE.keys() <= named().keys(), what=f"{sorted(TREE)} in {trace_id}")
    return named()


def _named(spans: list[Received]) -> dict[str, Received]:
    """Two spans have the same name in trainer and gateway, two in create and command, told apart by their parents."""
    by_id = {span.span_id: span for span in spans}
    found: dict[str, Received] = {}
    for span in spans:
        name = span.name
        if name == "sandlot.queue":
            if span.parent_id not in by_id:  # it comes with a later export
                continue
            name = f"{by_id[span.parent_id].name.removeprefix('sandlot.')} {name}"
        elif span.service == "trainer" and name != "rollout":
            name = f"trainer {name}"
        assert name not in found, name
        found[name] = span
    return found


def check_tree(spans: dict[str, Received]) -> None:
    """One tree from the trainer to the sidecar, nothing of it failed."""
    assert TREE.keys() <= spans.keys() <= TREE.keys() | MAYBE
    for name, parent in TREE.items():
        assert spans[name].parent_id == ("" if parent is None else spans[parent].span_id), name
    services = {name: span.service for name, span in spans.items()}
    assert services["sandlot.exec"] == services["sandlot.forward"] == "sandlot-gateway"
    assert services["sandlot.sidecar.run"] == services["sandlot.sidecar.claim"] == "sandlot-sidecar"
    assert {span.error for span in spans.values()} == {""}
