"""One trace from a caller of the SDK through gateway and sidecar, as a collector gets it, and its id in all logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import Collector, collector
from tests.stack import Stack, private_stack
from tests.traced import TREE, all_spans, check_tree, train

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

CLOCK = 1_000_000  # ns between two readings of a clock
LATE = 30_000_000_000  # ns until a gateway next runs that has sent its response, on a loaded machine


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


def test_a_create_and_a_command_are_one_trace_from_sdk_to_sidecar(stack: Stack, traces: Collector) -> None:
    told = train(url=stack.url, api_key=stack.api_key, collector=traces.url)
    trace_id = told["trace_id"]
    spans = all_spans(traces, trace_id)
    check_tree(spans)
    for name, parent in TREE.items():
        if parent is None:
            continue
        span, above = spans[name], spans[parent]
        late = LATE if above.service != span.service == "sandlot-gateway" else CLOCK
        assert above.begin - CLOCK <= span.begin <= span.end <= above.end + late, name
    run = spans["sandlot.sidecar.run"]
    assert (run.end - run.begin) / 1e9 >= 0.05
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
