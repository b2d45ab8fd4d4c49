"""One trace through an installed release: its gateway exports it to a collector outside of the cluster, all logs have its id."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests.collector import Collector, collector
from tests.kubernetes.boxes import POOLED, running_pod
from tests.kubernetes.killing import own_cluster_only, warm_everywhere
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.kubernetes.upgrades import words
from tests.traced import all_spans, check_tree, train
from tests.waiting import wait_until

TOKEN = "Bearer of-the-collector"
Line = dict[str, Any]


@dataclass(frozen=True)
class Traced:
    stack: Stack
    traces: Collector

    def lines(self, trace_id: str, *pod: str) -> list[Line]:
        """What a pod's log says of a trace; `pod` as `kubectl logs` takes it."""
        text = self.stack.kubectl("logs", *pod)
        return [json.loads(line) for line in text.splitlines() if trace_id in line]


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    """A release that sends its traces with the token of a Secret, here."""
    own_cluster_only()
    with (
        release_of_its_own("traced", runtime="runc") as stack,
        collector(_address(stack), authorization=TOKEN) as traces,
    ):
        stack.kubectl("create", "namespace", stack.namespace)
        headers = f"--from-literal=headers=authorization={TOKEN.replace(' ', '%20')}"
        stack.kubectl("create", "secret", "generic", "collector", "-n", stack.namespace, headers)
        values = {
            "gateway.replicas": 1,
            "controller.replicas": 1,
            "gateway.tracing": {"endpoint": traces.url, "headersSecret": "collector"},
            "gateway.config": {"logLevel": "debug", "accessLog": 1},
            "pools": {"default": {"size": 1, "template": {"image": IMAGE, **POOLED}}},
        }
        stack.install(*words(values))
        yield Traced(stack, traces)


def _address(stack: Stack) -> str:
    """This machine's, as the nodes see it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((stack.node_address, 9))  # sends nothing
        return str(sock.getsockname()[0])


def test_a_create_and_a_command_are_one_trace_from_sdk_to_sidecar(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = traced.stack
    warm_everywhere(stack, size=1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={TOKEN.replace(' ', '%20')}")
    told = train(
        url=stack.url, api_key=stack.api_key, collector=traced.traces.url, image=IMAGE, wait=180, **POOLED
    )
    trace_id = told["trace_id"]
    with (
        Client(url=stack.url, api_key=stack.api_key) as client,
        Sandbox.connect(told["sandbox"], client=client) as box,
    ):
        spans = all_spans(traced.traces, trace_id)
        check_tree(spans)
        assert spans["sandlot.create"].attributes["sandlot.sandbox.id"] == box.id
        assert spans["sandlot.exec"].attributes["sandlot.sandbox.id"] == box.id
        assert trace_id not in told["stdout"]

        requests = {
            spans[name].attributes["sandlot.request.id"] for name in ("sandlot.create", "sandlot.exec")
        }
        gateway = (f"deployment/{stack.fullname}-gateway", "-n", stack.namespace)
        sidecar = (running_pod(stack, box)["metadata"]["name"], "-c", "sidecar", "-n", stack.sandboxes)
        said = wait_until(
            lambda: _if_all(traced.lines(trace_id, *gateway), "message", {"control request", "request"}),
            pause=0.5,
        )
        assert requests <= {line["request"] for line in said}
        assert {line["trace_id"] for line in said} == {trace_id}
        said = wait_until(
            lambda: _if_all(traced.lines(trace_id, *sidecar), "event", {"claimed", "op_ended"}), pause=0.5
        )
        assert {line["request"] for line in said} == requests
        assert {line["trace_id"] for line in said} == {trace_id}


def _if_all(lines: list[Line], field: str, wanted: set[str]) -> list[Line]:
    """The lines, once they have all of these."""
    return lines if wanted <= {line[field] for line in lines} else []
