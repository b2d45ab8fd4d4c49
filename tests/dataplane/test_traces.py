"""Which requests are traced, what a sidecar hears of the trace, and the spans of what it answers."""

from __future__ import annotations

import logging

import pytest
from sandlot_gateway import logs
from sandlot_gateway.tracing.sampling import Sampler
from sandlot_gateway.tracing.span import Span
from sandlot_gateway.tracing.tracing import Tracing

from tests.dataplane.upstreams import Peer, Request, echo
from tests.waiting import until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{CALLER}-01", f"00-{TRACE}-{CALLER}-00"
BAD = [
    "garbage",
    f"00-{TRACE.upper()}-{CALLER}-01",
    f"00-{'0' * 32}-{CALLER}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"01-{TRACE}-{CALLER}-01",
    f"00-{TRACE}-{CALLER}-01-more",
    f"00-{TRACE}-{CALLER}-0x",
    f'00-{TRACE[:-2]}"}}-{CALLER}-01',
]


class Spans:
    """What the gateway would export."""

    def __init__(self) -> None:
        self.all: list[Span] = []

    def add(self, span: Span) -> None:
        self.all.append(span)

    async def close(self, *, timeout: float) -> None:
        return

    async def of(self, name: str) -> dict[str, Span]:
        """The spans by name, once the request's own, which is the last, has been added."""
        await until(lambda: any(span.name == name for span in self.all))
        return {span.name: span for span in self.all}


@pytest.fixture
def spans() -> Spans:
    return Spans()


def tracing(spans: Spans, *, ratio: float = 0.0, limit: int = 100) -> Tracing:
    sampler = Sampler(ratio=ratio, limit=limit, limited=lambda: None, clock=lambda: 7.0)
    return Tracing(sampler=sampler, sink=spans)


@pytest.fixture
def ask(gateway, upstream, client):
    """Sends commands with these traceparents to a gateway, and returns what its sidecar got."""

    async def asked(*traceparents: str, traced: Tracing | None = None, token: str = "", **options):
        requests: list[Request] = []
        gw = await gateway(tracing=traced)
        gw.route((await upstream(options.get("behave", echo)(requests))).address)
        connection = await client(gw)
        for value in traceparents:
            headers = (f"traceparent: {value}",) if value else ()
            connection.send("POST", "/sbx/sb-1/exec", token=token or gw.token, headers=headers)
            await connection.answer()
        return requests

    return asked


async def test_without_tracing_a_sidecar_gets_the_id_and_is_asked_for_nothing(ask):
    (request,) = await ask(SAMPLED)
    assert request.header("traceparent") == UNSAMPLED
    assert [name for name, _ in request.headers].count("traceparent") == 1


async def test_what_is_no_valid_traceparent_reaches_no_sidecar(ask, spans):
    requests = await ask(*BAD, traced=tracing(spans))
    assert [request.header("traceparent") for request in requests] == [None] * len(BAD)
    assert spans.all == []


async def test_two_traceparents_are_none(gateway, upstream, client, spans):
    requests: list[Request] = []
    gw = await gateway(tracing=tracing(spans))
    gw.route((await upstream(echo(requests))).address)
    connection = await client(gw)
    twice = (f"traceparent: {SAMPLED}", f"traceparent: {UNSAMPLED}")
    connection.send("POST", "/sbx/sb-1/exec", token=gw.token, headers=twice)
    await connection.answer()
    assert requests[0].header("traceparent") is None
    assert spans.all == []


async def test_an_app_gets_its_callers_traceparent_unchanged(exposed, client):
    requests: list[Request] = []
    gw, exposure, _, _ = await exposed(echo(requests))
    connection = await client(gw)
    connection.send("GET", exposure.path, body=None, headers=(f"traceparent: {SAMPLED}",))
    await connection.answer()
    assert requests[0].header("traceparent") == SAMPLED


async def test_the_caller_decides_whether_its_request_is_traced(ask, spans):
    sampled, unsampled = await ask(SAMPLED, UNSAMPLED, traced=tracing(spans, ratio=1.0))
    assert unsampled.header("traceparent") == UNSAMPLED
    found = await spans.of("sandlot.exec")
    assert [span.name for span in spans.all].count("sandlot.exec") == 1
    root, call = found["sandlot.exec"], found["sandlot.forward"]
    assert f"{root.trace_id:032x}" == TRACE
    assert f"{root.parent_id:016x}" == CALLER
    assert call.parent_id == root.span_id
    assert sampled.header("traceparent") == f"00-{TRACE}-{call.span_id:016x}-01"
    assert root.attributes["sandlot.sandbox.id"] == "sb-1"
    assert root.attributes["sandlot.tenant"] == "acme"
    assert root.attributes["http.response.status_code"] == 200


@pytest.mark.parametrize(("ratio", "traced"), [(0.0, 0), (1.0, 1)])
async def test_the_setting_decides_for_callers_that_do_not(ask, spans, ratio, traced):
    (request,) = await ask("", traced=tracing(spans, ratio=ratio))
    assert (request.header("traceparent") is not None) is bool(traced)
    if traced:
        assert (await spans.of("sandlot.exec"))["sandlot.exec"].parent_id == 0


async def test_a_tenant_has_a_limit_of_traces_and_others_keep_theirs(ask, spans):
    traced = tracing(spans, limit=2)
    requests = await ask(*[SAMPLED] * 5, traced=traced)
    flags = [(request.header("traceparent") or "")[-2:] for request in requests]
    assert flags == ["01", "01", "00", "00", "00"]
    assert traced.enter(SAMPLED.encode(), tenant="other").sampled  # pyright: ignore


async def test_a_request_without_a_credential_takes_no_trace_of_a_tenant(ask, spans):
    traced = tracing(spans, limit=1)
    assert await ask(SAMPLED, SAMPLED, traced=traced, token="sct_forged") == []
    (request,) = await ask(SAMPLED, traced=traced)
    assert (request.header("traceparent") or "").endswith("-01")


@pytest.mark.parametrize(
    ("timing", "stages"),
    [
        ("queue;dur=0.001, spawn;dur=0.001, run;dur=0.002, total;dur=0.005", {"queue", "spawn", "run"}),
        ("total;dur=0.001", set()),
        ("queue;dur=1e9, spawn;dur=1e9, run;dur=1e9, total;dur=1e9", set()),
        ("run;dur=nan, total;dur=inf", None),
        ("run;dur=-5, total;dur=-1", None),
        ("total" + ";" * 5000 + "dur=1", None),
        ("forged;dur=1, sandlot.exec;dur=1", None),
    ],
)
async def test_a_sidecars_timings_stay_within_its_call(ask, spans, timing, stages):
    def behave(requests: list[Request]):
        async def answer(peer: Peer) -> None:
            while True:
                request = await peer.request()
                await peer.body(request)
                peer.answer(b"ok", head=f"server-timing: {timing}\r\n".encode())

        return answer

    await ask(SAMPLED, traced=tracing(spans), behave=behave)
    found = await spans.of("sandlot.exec")
    call = found["sandlot.forward"]
    of_sidecar = {
        name.removeprefix("sandlot.sidecar.") for name in found if name.startswith("sandlot.sidecar.")
    }
    assert of_sidecar == (set() if stages is None else {"exec", *stages})
    for name in of_sidecar:
        span = found[f"sandlot.sidecar.{name}"]
        assert call.begin <= span.begin <= span.end <= call.end
        assert span.parent_id == (call if name == "exec" else found["sandlot.sidecar.exec"]).span_id


async def test_the_lines_of_a_request_have_its_trace_also_without_tracing(gateway, upstream, client, caplog):
    async def broken(peer: Peer) -> None:
        await peer.body(await peer.request())
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        peer.abort()

    gw = await gateway()
    gw.route((await upstream(broken)).address)
    connection = await client(gw)
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(logs.JsonFormatter().format(record))
    logging.getLogger("sandlot.data").addHandler(handler)
    try:
        connection.send(
            "POST", "/sbx/sb-1/exec", token=gw.token, headers=(f"traceparent: {SAMPLED}", "x-request-id: r-1")
        )
        await until(lambda: seen)
    finally:
        logging.getLogger("sandlot.data").removeHandler(handler)
    assert f'"trace_id": "{TRACE}"' in seen[0]
    assert '"request": "r-1"' in seen[0]
