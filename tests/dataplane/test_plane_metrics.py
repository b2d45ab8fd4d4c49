"""What the data plane counts: routes, codes and verdicts, with labels that no client and no sidecar can add to."""

from __future__ import annotations

import asyncio
from typing import get_args

from prometheus_client.parser import text_string_to_metric_families
from sandlot_gateway.metrics import CODES, ROUTES, DatagramDirection, DropReason, StreamEnd, WebhookOutcome

from tests.dataplane.plane_calls import ask
from tests.dataplane.upstreams import echo


async def test_what_nothing_expects_inside_a_response_is_counted_as_cut(ready):
    gw, _ = await ready(echo())
    sent: list[str] = []
    bodies = [b"x"]

    async def receive():
        # Once: what watches for the caller's end, while a connection is dialled, reads on.
        return {"type": "http.request", "body": bodies.pop()} if bodies else await asyncio.Event().wait()

    async def send(message):
        """A server that fails at the body, and takes no second begin of a response."""
        sent.append(message["type"])
        if len(sent) == 2:
            raise ValueError("nothing expects this")
        if len(sent) > 2:
            raise RuntimeError("the response has begun")

    path = "/sbx/sb-1/exec"
    headers = [(b"authorization", f"Bearer {gw.token}".encode()), (b"content-length", b"1")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await gw.plane(scope | {"headers": headers}, receive, send)
    assert sent == ["http.response.start", "http.response.body", "http.response.start"]
    counted = {
        sample.labels["code"]: sample.value
        for family in text_string_to_metric_families(gw.metrics.text().decode())
        for sample in family.samples
        if sample.name == "sandlot_requests_total" and sample.value
    }
    assert counted == {"cut": 1.0}


async def test_metrics_count_by_route_code_and_verdict(gateway, upstream, client):
    async def behave(peer):
        while True:
            await peer.body(await peer.request())
            peer.answer(b"{}", head=b"x-sandlot-verdict: oom\r\n")

    server = await upstream(behave)
    gw = await gateway()
    gw.route(server.address)
    connection = await client(gw)
    await ask(connection, token=gw.token)
    await ask(connection, token="")
    text = gw.metrics.text().decode()
    assert 'sandlot_requests_total{code="2xx",route="exec",verdict="oom"} 1.0' in text
    assert 'sandlot_requests_total{code="4xx",route="exec",verdict="none"} 1.0' in text
    assert 'sandlot_dials_total{result="ok"} 1.0' in text
    assert 'sandlot_pool_connections{state="idle"} 1.0' in text
    assert 'sandlot_in_flight{route="exec"} 0.0' in text
    assert "sb-1" not in text


async def test_no_label_grows_with_what_is_asked_for_or_answered(gateway, upstream, client):
    words = iter(["oom", "made-up", "x" * 300, "EXITED", "caf\u00e9"])
    statuses = iter([200, 299, 418, 599, 500])

    async def behave(peer):
        while True:
            await peer.body(await peer.request())
            head = f"x-sandlot-verdict: {next(words)}\r\n".encode("latin-1")
            peer.answer(b"{}", status=f"{next(statuses)} X", head=head)

    server = await upstream(behave)
    gw = await gateway()
    gw.route(server.address)
    connection = await client(gw)
    for path in ("exec", "ops/some-op", "files?path=/a", "logs", "upload"):
        connection.send("POST", f"/sbx/sb-1/{path}", body=b"{}", token=gw.token)
        await connection.answer()
    for path in ("/sbx/sb-1/claim", "/sbx/made-up/exec", "/expose/made-up/x", "/sbx/sb-1/made-up"):
        connection.send("POST", path, body=b"{}", token=gw.token)
        await connection.answer()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(gw.metrics.text().decode()):
        for sample in family.samples:
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    assert labels["route"] == set(ROUTES)
    assert labels["code"] <= set(CODES)
    assert labels["verdict"] == {"none", "other", "oom"}
    assert labels["scope"] == {"sandbox", "gateway"}
    # Of audit records, of spans, and of events' webhooks.
    audit, spans = {"written", "lost"}, {"exported", "queue_full", "export_failed"}
    assert labels["outcome"] == audit | spans | {*get_args(WebhookOutcome)}
    assert labels["file"] == {"certificate", "api_keys", "master_key", "prices", "quotas", "sidecar_tls"}
    assert labels["direction"] == set(get_args(DatagramDirection))
    # Of datagrams, and of streams of events.
    assert labels["reason"] == {*get_args(DropReason), *get_args(StreamEnd)}
    names = {"route", "code", "verdict", "le", "result", "scope", "state", "outcome", "file"}
    assert labels.keys() == names | {"direction", "reason"}
