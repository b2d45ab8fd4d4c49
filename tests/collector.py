"""An OpenTelemetry collector as a test needs it: takes OTLP over HTTP, and answers as the test says."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.waiting import wait_until


@dataclass(frozen=True)
class Received:
    """A span as it arrived; times in nanoseconds since the epoch, ids in hexadecimal."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    begin: int
    end: int
    attributes: dict[str, object]
    error: str


class Collector:
    """The spans that have arrived. `status` is the answer to later exports; while `held` is clear they get none."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.exports = 0
        self.status = 200
        self.held = threading.Event()
        self.held.set()
        self.url = ""

    def of_trace(self, trace_id: str) -> list[Received]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def wait_for(self, trace_id: str, names: set[str]) -> dict[str, Received]:
        """The spans of a trace by name, once it has these."""
        wait_until(lambda: names <= {span.name for span in self.of_trace(trace_id)}, what=str(names))
        return {span.name: span for span in self.of_trace(trace_id)}

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            resource = {pair.key: pair.value.string_value for pair in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    attributes: dict[str, object] = {}
                    for pair in span.attributes:
                        kind = pair.value.WhichOneof("value")
                        attributes[pair.key] = getattr(pair.value, kind) if kind else None
                    self.spans.append(
                        Received(
                            service=resource.get("service.name", ""),
                            name=span.name,
                            trace_id=span.trace_id.hex(),
                            span_id=span.span_id.hex(),
                            parent_id=span.parent_span_id.hex(),
                            kind=span.kind,
                            begin=span.start_time_unix_nano,
                            end=span.end_time_unix_nano,
                            attributes=attributes,
                            error=span.status.message,
                        )
                    )


@contextmanager
def collector(address: str = "127.0.0.1", *, authorization: str | None = None) -> Iterator[Collector]:
    """A collector on a port of its own; it refuses exports without this header `authorization`, if one is given."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.exports += 1
            found.held.wait()
            known = authorization is None or self.headers["authorization"] == authorization
            status = found.status if known else 401
            if self.path == "/v1/traces" and status == 200:
                found.take(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    found.url = f"http://{address}:{server.server_address[1]}"
    try:
        yield found
    finally:
        found.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
