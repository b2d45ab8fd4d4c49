"""E2B's wire by raw HTTP: processes, files and lifetimes, and what hostile, oversized and truncated requests get."""

from __future__ import annotations

import base64
import gzip
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.e2b.conftest import Box, enveloped, messages
from tests.e2e.processes import sidecars
from tests.sidecar.processes import command_line, descendants
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

STREAM = {"Content-Type": "application/connect+json"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "invalid"),
        (b"[]", "invalid"),
        (b"{}", "templateID"),
        (b'{"templateID": 1}', "templateID"),
        (b'{"templateID": "base", "timeout": "x"}', "timeout"),
        (b'{"templateID": "base", "timeout": -1}', "timeout"),
        (b'{"templateID": "base", "envVars": {"A=B": "1"}}', "envVars"),
        (b'{"templateID": "base", "metadata": {"a": "' + b"x" * 200 + b'"}}', "metadata"),
        (b'{"templateID": "base", "network": {"allowOut": ["10.0.0.0/8"]}}', "allowOut"),
        (b'{"templateID": "base", "network": {"rules": {"a.b": []}}}', "rules"),
        (b'{"templateID": "base", "autoResume": {"enabled": true}}', "autoResume"),
        (b"[" * 100_000, "invalid"),
        (b'{"templateID": "\xe9"}', "invalid"),
    ],
)
def test_a_bad_create_names_its_field(body: bytes, field: str, client: httpx.Client) -> None:
    answer = client.post("/v2/sandboxes", content=body)
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["message"]


def test_an_update_with_too_many_targets_names_its_field(box: Box, client: httpx.Client) -> None:
    targets = ["10.0.0.1"] * 1025
    answer = client.put(f"/sandboxes/{box.id}/network", json={"denyOut": targets})
    assert (answer.status_code, answer.json()["code"]) == (400, 400), answer.text
    assert answer.json()["message"].startswith("network.denyOut: ")


def test_what_is_not_built_says_so(box: Box, client: httpx.Client) -> None:
    answer = client.get(f"/sandboxes/{box.id}/logs")
    assert (answer.status_code, answer.json()["code"]) == (501, 501)
    assert client.get("/volumes").status_code == 501
    assert client.get("/elsewhere").status_code == 404
    assert client.post("/v2/sandboxes", json={"templateID": "unheard-of"}).status_code == 404
    answer = box.rpc("filesystem.Filesystem/Chown", {"path": "/"})
    assert (answer.status_code, answer.json()["code"]) == (501, "unimplemented")
    answer = box.envd.get("/health", headers=box.headers(**{"E2b-Sandbox-Port": "49999"}))
    assert answer.status_code == 502
    assert "port is not open" in answer.json()["message"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "invalid_argument"),
        (b"\0\0\0", 400, "invalid_argument"),
        (b"\0\0\0\0\x09{}", 400, "invalid_argument"),
        (b"\1\0\0\0\2{}", 501, "unimplemented"),
        (b"\0\xff\xff\xff\xff{}", 429, "resource_exhausted"),
        (enveloped({}) * 2, 400, "invalid_argument"),
        (enveloped({}), 400, "invalid_argument"),
        (enveloped({"process": {"cmd": 3}}), 400, "invalid_argument"),
        (enveloped({"process": {"cmd": "a", "args": "b"}}), 400, "invalid_argument"),
        (enveloped({"process": {"cmd": "a"}, "tag": "a:b"}), 400, "invalid_argument"),
        (enveloped({"process": {"cmd": "a"}, "pty": {}}), 400, "invalid_argument"),
        (b"\0\0\1\x86\xa0" + b"[" * 100_000, 400, "invalid_argument"),
        (b'\0\0\0\0\x0b{"tag":"\xe9"}', 400, "invalid_argument"),
    ],
)
def test_a_bad_start_runs_nothing(content: bytes, status: int, code: str, box: Box) -> None:
    answer = box.envd.post("/process.Process/Start", content=content, headers=box.headers(**STREAM))
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert box.rpc("process.Process/List", {}).json() == {"processes": []}


def test_a_request_that_never_ends_is_bounded(box: Box) -> None:
    def flood() -> Any:
        for _ in range(20):
            yield b"\0" * (1 << 20)

    answer = box.envd.post("/process.Process/List", content=flood(), headers=box.headers(**{"Content-Type": "application/json"}))  # fmt: skip
    assert (answer.status_code, answer.json()["code"]) == (429, "resource_exhausted")


def test_a_process_streams_its_output_and_its_own_end(box: Box) -> None:
    found = messages(box.run("printf out; printf err >&2; exit 3"))
    kinds = [next(iter(each["event"])) for _, each in found[:-1]]
    assert (kinds[0], kinds[-1], found[-1]) == ("start", "end", (2, {}))
    data = [each["event"]["data"] for _, each in found if "data" in each.get("event", {})]
    assert {name: base64.b64decode(value) for each in data for name, value in each.items()} == {
        "stdout": b"out",
        "stderr": b"err",
    }
    assert found[-2][1]["event"]["end"]["exitCode"] == 3


def test_a_time_limit_is_counted_as_one(box: Box, stack: Stack) -> None:
    document = {"process": {"cmd": "/bin/sleep", "args": ["4204"]}, "stdin": False}
    headers = box.headers(**STREAM, **{"Connect-Timeout-Ms": "100"})
    answer = box.envd.post("/process.Process/Start", content=enveloped(document), headers=headers)
    assert messages(answer.content)[-1][1]["error"]["code"] == "deadline_exceeded"
    key = {"Authorization": f"Bearer {stack.api_key}"}
    counted = 'sandlot_requests_total{code="2xx",route="e2b",verdict="timeout"} 1.0'
    wait_until(lambda: counted in plain_http.get(f"{stack.url}/metrics", headers=key).text)


def test_a_process_outlives_its_client_and_is_found_by_its_tag(box: Box) -> None:
    command = "i=0; while :; do echo 0123456789012345678901234567890123456789; i=$((i+1)); echo $i >/tmp/count; done"
    document = {"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "tag": "flood"}
    headers = box.headers(**STREAM)
    with box.envd.stream(
        "POST", "/process.Process/Start", content=enveloped(document), headers=headers
    ) as answer:
        next(answer.iter_raw())
    listed = box.rpc("process.Process/List", {}).json()["processes"]
    assert [each["tag"] for each in listed] == ["flood"]
    answer = box.rpc("process.Process/SendSignal", {"process": {"tag": "flood"}, "signal": "SIGNAL_SIGKILL"})
    assert answer.status_code == 200
    wait_until(lambda: not box.rpc("process.Process/List", {}).json()["processes"])


def test_hostile_names_and_times_of_files_are_listed(box: Box) -> None:
    box.run("mkdir -p /tmp/odd/sub; cd /tmp/odd; touch $(printf 'a\\377'); ln -s loop loop; mkfifo fifo;"
            " mkdir $(printf 'd\\376'); touch -d @99999999999999 /dev/shm/late; mv /dev/shm/late . || true")  # fmt: skip
    answer = box.rpc("filesystem.Filesystem/ListDir", {"path": "/tmp/odd", "depth": 2})
    assert answer.status_code == 200, answer.text
    assert {each["name"] for each in answer.json()["entries"]} >= {
        "a\ufffd",
        "d\ufffd",
        "loop",
        "fifo",
        "sub",
    }
    answer = box.rpc("filesystem.Filesystem/Stat", {"path": "/tmp/odd/loop"})
    assert answer.json()["entry"]["type"] == "FILE_TYPE_SYMLINK"
    answer = box.envd.get("/files?path=/tmp/odd/fifo", headers=box.headers())
    assert (answer.status_code, answer.json()["code"]) == (403, 403)


def test_an_upload_that_breaks_off_leaves_nothing(box: Box, stack: Stack) -> None:
    head = (
        f"POST /e2b/files?path=/tmp/broken HTTP/1.1\r\nhost: x\r\ne2b-sandbox-id: {box.id}\r\n"
        f"x-access-token: {box.token}\r\ncontent-type: application/octet-stream\r\ncontent-length: 1000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", stack.port)) as connection:
        connection.sendall(head.encode() + b"x" * 500)
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="/tmp/cut"\r\n\r\nhalf'
    answer = box.envd.post("/files", content=part, headers=box.headers(**form))
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    packed = box.headers(**{"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"})
    assert box.envd.post("/files?path=/tmp/packed", content=b"no gzip", headers=packed).status_code == 400
    answer = box.rpc("filesystem.Filesystem/ListDir", {"path": "/tmp"})
    assert not {"broken", "cut", "packed"} & {each["name"] for each in answer.json()["entries"]}


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (b'--b\r\nContent-Disposition: form-data; name="note"\r\n\r\n', b"\r\n--b--"),
        (b'--b\r\nContent-Disposition: form-data; name="file"; filename="/tmp/f"\r\n\r\nx\r\n--b--', b""),
    ],
)
def test_an_upload_that_unpacks_to_much_that_is_no_file_is_refused(
    head: bytes, tail: bytes, box: Box
) -> None:
    body = gzip.compress(head + bytes(8 << 20) + tail, compresslevel=1)
    form = {"Content-Type": "multipart/form-data; boundary=b", "Content-Encoding": "gzip"}
    answer = box.envd.post("/files", content=body, headers=box.headers(**form))
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    assert "more than 1048576 bytes" in answer.json()["message"]


@pytest.mark.parametrize("size", [4097, 20_000])
def test_a_path_that_is_too_long_is_no_lost_sandbox(size: int, box: Box) -> None:
    path = "/" + "x" * size
    for method, document in (
        ("Stat", {"path": path}),
        ("ListDir", {"path": path}),
        ("Remove", {"path": path}),
        ("MakeDir", {"path": path}),
        ("Move", {"source": "/etc/hostname", "destination": path}),
        ("CreateWatcher", {"path": path}),
    ):
        answer = box.rpc(f"filesystem.Filesystem/{method}", document)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), method
    answer = box.envd.get("/files", params={"path": path}, headers=box.headers())
    assert (answer.status_code, answer.json()["code"]) == (400, 400)
    form = box.headers(**{"Content-Type": "multipart/form-data; boundary=b"})
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{path[:9000]}"\r\n\r\nx\r\n--b--'
    answer = box.envd.post("/files", content=head.encode(), headers=form)
    assert (answer.status_code, answer.json()["code"]) == (400, 400)


def test_processes_contexts_and_deadlines_outlive_the_gateway(
    make_box: Callable[..., Box], client: httpx.Client, stack: Stack
) -> None:
    box = make_box(timeout=300)
    document = {"process": {"cmd": "/bin/sleep", "args": ["300"]}, "tag": "long"}
    with box.envd.stream(
        "POST", "/process.Process/Start", content=enveloped(document), headers=box.headers(**STREAM)
    ) as answer:
        (_, told), *_ = messages(next(answer.iter_raw()))
    pid = told["event"]["start"]["pid"]
    assert box.execute("x = 41") == [{"type": "number_of_executions", "execution_count": 1}]
    assert client.post(f"/sandboxes/{box.id}/timeout", json={"timeout": 3000}).status_code == 204
    before = client.get(f"/sandboxes/{box.id}").json()
    stack.kill()
    stack.start()
    assert client.get(f"/sandboxes/{box.id}").json() == before
    assert [each["pid"] for each in box.rpc("process.Process/List", {}).json()["processes"]] == [pid]
    answer = box.rpc("process.Process/SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert answer.status_code == 200
    assert box.execute("x + 1")[1]["text"] == "42"


def test_a_timeout_of_none_ends_the_sandbox(make_box: Callable[..., Box], client: httpx.Client) -> None:
    box = make_box(timeout=300)
    assert client.post(f"/sandboxes/{box.id}/connect", json={"timeout": 1}).status_code == 200
    assert client.post(f"/sandboxes/{box.id}/timeout", json={"timeout": 0}).status_code == 204
    wait_until(lambda: client.get(f"/sandboxes/{box.id}").status_code == 404)
    answer = box.rpc("process.Process/List", {})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "was not found" in answer.json()["message"]
    answer = box.envd.get("/health", headers=box.headers())
    assert answer.status_code == 502
    assert "was not found" in answer.json()["message"]


def test_an_idempotency_key_makes_one_sandbox(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "the-same"}
    made = [client.post("/v2/sandboxes", json={"templateID": "base"}, headers=headers) for _ in range(2)]
    assert made[0].json() == made[1].json()
    client.delete(f"/sandboxes/{made[0].json()['sandboxID']}")


def test_pages_of_a_list_have_each_sandbox_once(make_box: Callable[..., Box], client: httpx.Client) -> None:
    made = [make_box(metadata={"page": "s=1"}) for _ in range(3)]
    for order, wanted in (("asc", made), ("desc", made[::-1])):
        query = {"metadata": "page=s%3D1", "limit": "2", "order": order}
        first = client.get("/v2/sandboxes", params=query)
        second = client.get("/v2/sandboxes", params={**query, "nextToken": first.headers["x-next-token"]})
        found = [each["sandboxID"] for each in first.json() + second.json()]
        assert found == [each.id for each in wanted]
        assert "x-next-token" not in second.headers
    for query in (
        {"limit": "0"},
        {"order": "up"},
        {"state": "gone"},
        {"nextToken": "zz"},
        {"nextToken": f'[1{"0" * 400}, ""]'.encode().hex()},
    ):
        assert client.get("/v2/sandboxes", params=query).status_code == 400
    for each in made:
        client.delete(f"/sandboxes/{each.id}")


def test_a_lost_sidecar_is_unavailable_and_no_result(make_box: Callable[..., Box], stack: Stack) -> None:
    box = make_box(timeout=300)
    document = {"process": {"cmd": "/bin/sleep", "args": ["4203"]}, "stdin": False}
    with box.envd.stream(
        "POST", "/process.Process/Start", content=enveloped(document), headers=box.headers(**STREAM)
    ) as answer:
        read = answer.iter_raw()
        stream = next(read)
        # The start is told before the process is the command's program.
        (sidecar,) = wait_until(lambda: [pid for pid in sidecars(stack) if _runs(pid, b"sleep\x004203\0")])
        os.kill(sidecar, signal.SIGKILL)
        stream += b"".join(read)
    flags, last = messages(stream)[-1]
    assert (flags, last["error"]["code"]) == (2, "unavailable")
    assert not any("end" in each.get("event", {}) for _, each in messages(stream))


def _runs(sidecar: int, command: bytes) -> bool:
    return any(command_line(pid).endswith(command) for pid in descendants(sidecar))
