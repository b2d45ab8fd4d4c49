"""The API client over real HTTP: answers, errors, time-outs, tokens that are renewed."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from aiohttp import web
from sandlot_kube.access import Access, TokenFile
from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError, KubeUnreachable

from tests.goodbyes import open_sockets
from tests.kube.apiserver import ApiServer
from tests.kube.scripted import answered, failed, stay_open
from tests.ports import free_port

PATH = "/api/v1/namespaces/default/pods"


async def test_an_answer_is_its_body(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [answered(201, {"a": 1})]
    body = await client.request("POST", PATH, params={"dryRun": "All"}, body={"b": "ü"})
    assert body == b'{"a": 1}'
    [request] = script.requests
    assert (request.method, request.path, dict(request.query)) == ("POST", PATH, {"dryRun": "All"})
    assert request.headers["Content-Type"] == "application/json"


async def test_a_refusal_has_status_reason_message_and_wait(server_and_client) -> None:
    script, client = server_and_client
    status = {"kind": "Status", "reason": "TooManyRequests", "message": "slow down"}
    script.lists = [answered(429, status, {"Retry-After": "3"})]
    with pytest.raises(KubeError) as caught:
        await client.request("GET", PATH)
    error = caught.value
    assert (error.status, error.reason, error.message) == (429, "TooManyRequests", "slow down")
    assert error.retry_after == 3.0


@pytest.mark.parametrize(("asked", "wait"), [("3600", 60.0), ("inf", 60.0), ("nan", None), ("-1", None)])
async def test_a_server_may_ask_for_a_minute_at_most(
    server_and_client, asked: str, wait: float | None
) -> None:
    script, client = server_and_client
    script.lists = [answered(503, {"kind": "Status"}, {"Retry-After": asked})]
    with pytest.raises(KubeError) as caught:
        await client.request("GET", PATH)
    assert caught.value.retry_after == wait


async def test_a_refusal_without_a_status_object_is_told_all_the_same(server_and_client) -> None:
    script, client = server_and_client

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>proxy</html>")

    script.lists = [answer]
    with pytest.raises(KubeError, match="<html>proxy</html>") as caught:
        await client.request("GET", PATH)
    assert (caught.value.status, caught.value.retry_after) == (502, None)


async def test_a_redirect_is_an_error_and_not_followed(server_and_client) -> None:
    """It would carry the token to wherever it points."""
    script, client = server_and_client
    script.lists = [answered(302, {}, {"Location": f"{script.url}/elsewhere"})]
    with pytest.raises(KubeError) as caught:
        await client.request("GET", PATH)
    assert caught.value.status == 302
    assert len(script.requests) == 1


async def test_a_write_without_an_answer_is_sent_once(server_and_client) -> None:
    script, client = server_and_client

    async def cut(request: web.Request) -> web.Response:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    script.lists = [cut]
    with pytest.raises(KubeUnreachable):
        await client.request("POST", PATH, body=b"{}")
    assert len(script.requests) == 1


async def test_a_server_that_says_nothing_is_unreachable_in_time(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [stay_open()]
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(KubeUnreachable, match="no answer in time"):
        await client.request("GET", PATH, timeout=0.2)
    assert loop.time() - began < 30


async def test_no_server_is_unreachable() -> None:
    client = KubeClient(Access(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(KubeUnreachable) as caught:
        await client.request("GET", PATH)
    assert caught.value.status == 0
    await client.close()


async def test_a_cancelled_request_is_cancelled(server_and_client) -> None:
    script, client = server_and_client
    script.lists = [stay_open()]
    task = asyncio.create_task(client.request("GET", PATH))
    await script.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_renewed_token_is_used_from_the_next_request_on(server_and_client, tmp_path: Path) -> None:
    script, _ = server_and_client
    script.lists = [answered(200, {}), answered(200, {})]
    file = tmp_path / "token"
    file.write_text("first\n")
    client = KubeClient(Access(script.url, token=TokenFile(file)))
    await client.request("GET", PATH)
    file.write_text("the second\n")
    await client.request("GET", PATH)
    await client.close()
    assert [r.headers["Authorization"] for r in script.requests] == ["Bearer first", "Bearer the second"]


async def test_a_401_is_tried_again_with_the_token_that_came_meanwhile(
    server_and_client, tmp_path: Path
) -> None:
    script, _ = server_and_client
    file = tmp_path / "token"
    file.write_text("old")

    async def refuse(request: web.Request) -> web.StreamResponse:
        file.write_text("renewed")
        return await failed(401, "Unauthorized")(request)

    script.lists = [refuse, answered(201, {"done": True})]
    client = KubeClient(Access(script.url, token=TokenFile(file)))
    assert await client.request("POST", PATH, body={}) == b'{"done": true}'
    await client.close()
    assert [r.headers["Authorization"] for r in script.requests] == ["Bearer old", "Bearer renewed"]


async def test_a_401_with_the_same_token_is_an_error(server_and_client, tmp_path: Path) -> None:
    script, _ = server_and_client
    (tmp_path / "token").write_text("old")
    script.lists = [failed(401, "Unauthorized")]
    client = KubeClient(Access(script.url, token=TokenFile(tmp_path / "token")))
    with pytest.raises(KubeError) as caught:
        await client.request("GET", PATH)
    await client.close()
    assert caught.value.status == 401
    assert len(script.requests) == 1


async def test_a_token_file_that_is_gone_is_told(server_and_client, tmp_path: Path) -> None:
    script, _ = server_and_client
    client = KubeClient(Access(script.url, token=TokenFile(tmp_path / "token")))
    with pytest.raises(KubeUnreachable, match="token"):
        await client.request("GET", PATH)
    await client.close()


async def test_the_token_is_in_no_repr(tmp_path: Path) -> None:
    assert "geheim" not in repr(Access("http://x", token="geheim"))


@pytest.mark.programs
async def test_a_client_that_is_closed_leaves_no_connection_to_a_server_that_says_nothing_more(
    apiserver: ApiServer,
) -> None:
    """TLS says goodbye and waits for the other side's."""
    client = KubeClient(apiserver.access())
    before = open_sockets()
    async with contextlib.aclosing(
        client.lines(PATH, params={"watch": "1"}, idle=30.0, opened=lambda: None)
    ) as lines:
        waiting = asyncio.ensure_future(anext(lines))
        await client.request("GET", PATH)
        with apiserver.frozen():
            waiting.cancel()
            await asyncio.wait([waiting])
            await client.close()
            assert not open_sockets() - before
