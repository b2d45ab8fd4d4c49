"""Ports that the operator has made public: to whom, which sandboxes', and how many requests at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests import plain_http
from tests.e2b.apps import App, code_of, document, started
from tests.e2b.conftest import DOMAIN, OTHER_KEY, Box
from tests.ports import free_port
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

AT_ONCE = 2
ALONE = {"allow_internet_access": False}  # else the local backend gives it the machine's own network


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    options = ("--e2b", "--e2b-domain", DOMAIN, "--e2b-public-ports", "--e2b-templates", "base=host")
    limits = ("--max-running", str(AT_ONCE), "--pool", "warm=2")
    with private_stack(*options, *limits, "--api-keys", f"{OTHER_KEY}:other") as running:
        yield running


@pytest.fixture(scope="module")
def app(make_box: Callable[..., Box], stack: Stack) -> App:
    return started(make_box(timeout=600, **ALONE), stack)


def test_a_create_decides_whether_its_ports_are_public(
    app: App, stack: Stack, make_box: Callable[..., Box], client: httpx.Client
) -> None:
    assert app.told("/console/")["path"] == "/console/"
    assert app.told(headers={"X-API-Key": stack.api_key})["headers"].get("x-api-key") is None
    assert code_of(app.ask(headers={"X-API-Key": OTHER_KEY})) == (502, "sandbox_not_found")
    closed = app.ask(host=f"{free_port()}-{app.box.id}.{DOMAIN}")
    assert (code_of(closed), document(closed)["code"]) == ((502, "port_closed"), 502)
    assert code_of(app.ask(host=f"80-sb-{'0' * 20}.{DOMAIN}")) == (502, "sandbox_not_found")

    private = make_box(network={"allowPublicTraffic": False}, **ALONE)
    shares_the_machines_ports = make_box()
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    body = {"docker_image": "host", "wait_seconds": 20, "network": "none"}
    ours = plain_http.post(f"{stack.url}/api/v1/sandbox", json=body, headers=headers, timeout=60).json()["id"]
    for sandbox_id in (private.id, shares_the_machines_ports.id, ours):
        answer = app.ask(host=f"80-{sandbox_id}.{DOMAIN}")
        assert code_of(answer) == (403, "no_traffic_token")
    assert client.delete(f"/sandboxes/{private.id}").status_code == 204
    assert code_of(app.ask(host=f"80-{private.id}.{DOMAIN}")) == (502, "sandbox_not_found")


def test_a_visitor_is_told_of_a_pause(app: App, make_box: Callable[..., Box], client: httpx.Client) -> None:
    box = make_box(timeout=600, **ALONE)
    host = f"{free_port()}-{box.id}.{DOMAIN}"
    assert client.post(f"/sandboxes/{box.id}/pause", json={}).status_code == 204
    assert code_of(app.ask(host=host)) == (409, "sandbox_paused")
    assert client.post(f"/sandboxes/{box.id}/connect", json={"timeout": 600}).status_code == 201
    assert code_of(app.ask(host=host)) == (502, "port_closed")
    assert client.delete(f"/sandboxes/{box.id}").status_code == 204


def test_so_many_requests_reach_a_sandboxs_apps_at_once(app: App, stack: Stack) -> None:
    with ExitStack() as streams, plain_http.client(timeout=60) as client:

        def begun() -> (
            bool
        ):  # an answer that is longer than any buffer; an earlier request may hold a place still
            request = client.build_request("GET", f"{stack.url}/down", headers={"Host": app.host})
            answer = client.send(request, stream=True)
            streams.callback(answer.close)
            return answer.status_code == 200

        for _ in range(AT_ONCE):
            wait_until(begun)
        full = app.ask()
        assert (code_of(full), document(full)["connectionLimit"]) == ((429, "busy"), AT_ONCE)
