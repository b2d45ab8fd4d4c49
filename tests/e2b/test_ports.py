"""Ports of sandboxes at `PORT-SANDBOX.DOMAIN`: who may reach them, what passes, and what each side gets of the other."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable
from http.client import HTTPConnection

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.e2b.apps import App, code_of, document, started
from tests.e2b.conftest import DOMAIN, OTHER_KEY, Box
from tests.ports import free_port
from tests.stack import Stack

pytestmark = pytest.mark.root

TOKEN = "E2B-Traffic-Access-Token"


@pytest.fixture(scope="module")
def app(box: Box, stack: Stack) -> App:
    return started(box, stack)


@pytest.fixture(scope="module")
def token(app: App, client: httpx.Client) -> dict[str, str]:
    """The token that the SDK has of a create or connect, as its users send it."""
    answer = client.post(f"/sandboxes/{app.box.id}/connect", json={"timeout": 600})
    return {TOKEN: answer.json()["trafficAccessToken"]}


def test_a_port_is_open_to_the_sandboxs_tokens_and_its_tenants_key_alone(
    app: App, token: dict[str, str], stack: Stack, make_box: Callable[..., Box]
) -> None:
    hexadecimal = "e2b_" + stack.api_key.encode().hex()
    for headers in (
        token,
        {TOKEN: app.box.token},
        {"X-Access-Token": app.box.token},
        {"X-API-Key": stack.api_key},
        {"X-API-Key": hexadecimal},
    ):
        assert app.told(headers=headers)["path"] == "/", headers
    message = (
        "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
    )
    for headers in (
        {},
        {"Authorization": f"Bearer {stack.api_key}"},
        {"X-API-Key": "unknown"},
        {"Cookie": "a=1"},
    ):
        answer = app.ask(headers=headers)
        assert code_of(answer) == (403, "no_traffic_token"), headers
        assert document(answer)["message"] == message
        assert document(answer)["sandboxId"] == app.box.id
    others = make_box(key=OTHER_KEY)
    for wrong in (others.token, "stt_AAAA.AAAA", stack.api_key, token[TOKEN] + "A", "sct" + token[TOKEN][3:]):
        answer = app.ask(headers={TOKEN: wrong})
        assert (code_of(answer)[0], document(answer)["message"][-10:]) == (403, "is invalid"), wrong
    # Another tenant's key tells nothing that one for a sandbox that never was does not.
    answers = [
        app.ask(headers={"X-API-Key": OTHER_KEY}),
        app.ask(headers={"X-API-Key": stack.api_key}, host=f"80-sb-{'0' * 20}.{DOMAIN}"),
    ]
    assert [code_of(each) for each in answers] == [(502, "sandbox_not_found")] * 2
    assert [document(each)["message"] for each in answers] == ["The sandbox was not found"] * 2


def test_the_token_of_apps_opens_neither_commands_nor_files(
    app: App, token: dict[str, str], stack: Stack
) -> None:
    traffic = token[TOKEN]
    ids = {"E2b-Sandbox-Id": app.box.id}
    for headers in ({**ids, "X-Access-Token": traffic}, {**ids, TOKEN: traffic}):
        assert app.box.envd.get("/files?path=/etc/hostname", headers=headers).status_code == 401
        assert app.box.envd.post("/execute", json={"code": "1"}, headers=headers).status_code == 401
    assert app.box.envd.get("/contexts", headers={**ids, TOKEN: traffic}).status_code == 200
    bearer = {"Authorization": f"Bearer {traffic}"}
    assert app.box.envd.post(f"{stack.url}/sbx/{app.box.id}/exec", json={}, headers=bearer).status_code == 401


def test_no_credential_reaches_the_app_and_the_apps_own_do(
    app: App, token: dict[str, str], stack: Stack
) -> None:
    def got(**headers: str) -> dict[str, str]:
        return app.told(
            headers={**token, **{name.replace("_", "-"): value for name, value in headers.items()}}
        )["headers"]

    basic = "Basic " + base64.b64encode(f"user:{stack.api_key}".encode()).decode()
    for name, value in (
        ("X-API-Key", stack.api_key),
        ("X-API-Key", "e2b_" + stack.api_key.encode().hex()),
        ("X-API-Key", OTHER_KEY),
        ("X-Access-Token", app.box.token),
        ("Authorization", f"Bearer {stack.api_key}"),
        ("Authorization", stack.api_key),
        ("Authorization", f"bearer {token[TOKEN]}"),
        ("Authorization", basic),
    ):
        seen = app.ask(headers={**token, name: value, "E2b-Sandbox-Id": "x", "Forwarded": "for=6.6.6.6"}).text
        assert name.lower() not in seen.lower(), (name, value)
        assert token[TOKEN] not in seen
        assert "forwarded: for" not in seen.lower()
        assert "e2b-" not in seen.lower()
    own = {
        "X-API-Key": "the-apps-own",
        "X-Access-Token": "also",
        "Authorization": "Bearer its-own",
        "Cookie": "a=1",
    }
    seen = app.told(headers={**token, **own, "X-Forwarded-For": "6.6.6.6"})["headers"]
    assert {name: seen.get(name.lower()) for name in own} == own
    assert seen["host"] == seen["x-forwarded-host"] == app.host
    assert seen["x-forwarded-for"] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        *("/console/", "/api/v1/sandbox", "/e2b/health", "/metrics", "/healthz", "/expose/a/", "/e2b-app/"),
        *("/fusion/key/run_code", "/run_code", "/internal/news", "/a%2Fb/c?x=1&y=%20"),
    ],
)
def test_every_path_is_the_apps(path: str, app: App, token: dict[str, str]) -> None:
    assert app.told(path, headers=token)["path"] == path
    assert app.told(path, method="POST", headers=token, content=b"x")["path"] == path
    assert code_of(app.ask(path)) == (403, "no_traffic_token")


def test_no_name_that_could_be_an_apps_serves_anything_else(
    app: App, token: dict[str, str], stack: Stack
) -> None:
    label = app.host.partition(".")[0]
    for host in (f"{app.host}.", f"{app.host.upper()}:8642"):
        assert app.told("/healthz", headers=token, host=host)["path"] == "/healthz"
    for host, error in (
        (f"0-{app.box.id}.{DOMAIN}", "no_such_port"),
        (f"65536-{app.box.id}.{DOMAIN}", "no_such_port"),
        (f"{'9' * 200}-{app.box.id}.{DOMAIN}", "no_such_port"),
        (f"80-sb-abc.{DOMAIN}", "sandbox_not_found"),
        (f"49983-sb-abc.{DOMAIN}", "sandbox_not_found"),
        (f"80-.{DOMAIN}", "sandbox_not_found"),
    ):
        assert code_of(app.ask("/healthz", headers=token, host=host))[1] == error, host
    twice = HTTPConnection("127.0.0.1", stack.port, timeout=60)
    twice.putrequest("GET", "/healthz", skip_host=True)
    for name, value in (("Host", f"127.0.0.1:{stack.port}"), ("Host", app.host), *token.items()):
        twice.putheader(name, value)
    twice.endheaders()
    refused = twice.getresponse()
    assert (refused.status, refused.headers["X-Sandlot-Refusal"]) == (400, "no_such_port")
    twice.close()
    # A path at the gateway's own name is none of these.
    assert app.ask(f"/e2b-app/{label}", host=f"127.0.0.1:{stack.port}", headers=token).status_code in (
        401,
        404,
    )


def test_bodies_of_any_size_pass_both_ways(app: App, token: dict[str, str]) -> None:
    pieces = (b"x" * 0x10000 for _ in range(256))  # more than any buffer
    assert app.ask("/up", method="POST", headers=token, content=pieces).text == str(256 * 0x10000)
    assert len(app.ask("/down", headers=token).content) == 256 * 0x10000


def test_an_apps_answer_is_never_taken_for_the_gateways(app: App, token: dict[str, str]) -> None:
    answer = app.ask("/deny", headers=token)
    assert code_of(answer) == (502, None)
    assert (answer.headers["x-own"], "clear-site-data" in answer.headers) == ("1", False)
    assert answer.headers["set-cookie"] == "a=1; Path=/; Secure"


def test_a_closed_port_and_an_ended_sandbox_have_e2bs_answers(
    app: App, token: dict[str, str], make_box: Callable[..., Box], client: httpx.Client
) -> None:
    port = free_port()
    answer = app.ask(host=f"{port}-{app.box.id}.{DOMAIN}", headers=token)
    assert answer.status_code == 502
    text = "The sandbox is running but port is not open"
    told = {key: value for key, value in document(answer).items() if key != "error"}
    assert told == {"sandboxId": app.box.id, "message": text, "port": port, "code": 502}
    ended = make_box()
    assert client.delete(f"/sandboxes/{ended.id}").status_code == 204
    answer = app.ask(host=f"{port}-{ended.id}.{DOMAIN}", headers={TOKEN: ended.token})
    assert (answer.status_code, document(answer)["message"]) == (502, "The sandbox was not found")


def test_a_websocket_passes_with_the_token_alone(app: App, token: dict[str, str], stack: Stack) -> None:
    def opened(host: str, headers: dict[str, str]) -> ClientConnection:
        sock = socket.create_connection(("127.0.0.1", stack.port))
        return connect(f"ws://{host}/socket?x=1", additional_headers=headers, sock=sock, proxy=None)

    with opened(app.host, {**token, "X-API-Key": stack.api_key}) as connection:
        seen = json.loads(connection.recv())
        assert (seen["host"], TOKEN.lower() in seen, "x-api-key" in seen) == (app.host, False, False)
        connection.send("one")
        assert connection.recv() == "one"
    closed = f"{free_port()}-{app.box.id}.{DOMAIN}"
    for host, headers, status in (
        (app.host, {}, 403),
        (app.host, {TOKEN: "stt_AAAA.AAAA"}, 403),
        (app.host, {"X-API-Key": OTHER_KEY}, 502),
        (closed, token, 502),
    ):
        with pytest.raises(InvalidStatus) as refused:
            opened(host, headers)
        assert refused.value.response.status_code == status
    assert b"port is not open" in refused.value.response.body


def test_a_paused_sandboxs_port_says_so_and_its_token_works_again(
    make_box: Callable[..., Box], client: httpx.Client, stack: Stack
) -> None:
    box = make_box(timeout=600, network={"maskRequestHost": "app-${PORT}.example.com"})
    before = started(box, stack)
    traffic = client.post(f"/sandboxes/{box.id}/connect", json={"timeout": 600}).json()["trafficAccessToken"]
    assert client.post(f"/sandboxes/{box.id}/pause", json={}).status_code == 204
    answer = before.ask(headers={TOKEN: traffic})
    assert (code_of(answer), document(answer)["message"]) == (
        (409, "sandbox_paused"),
        "The sandbox is paused",
    )
    assert code_of(before.ask()) == (403, "no_traffic_token")
    again = client.post(f"/sandboxes/{box.id}/connect", json={"timeout": 600})
    assert again.json()["trafficAccessToken"] == traffic
    after = started(box, stack)
    assert after.told(headers={TOKEN: traffic})["headers"]["host"] == f"app-{after.port}.example.com"
    assert client.delete(f"/sandboxes/{box.id}").status_code == 204


@pytest.mark.parametrize("mask", ["a b", "a\r\nX-Evil: 1", "a/b", "ä", "x" * 300, 1])
def test_a_mask_that_is_no_host_name_is_refused(mask: object, client: httpx.Client) -> None:
    answer = client.post("/v2/sandboxes", json={"templateID": "base", "network": {"maskRequestHost": mask}})
    assert answer.status_code == 400
    assert "maskRequestHost" in answer.json()["message"]
