"""Any bytes and any documents sent to a real sidecar: no 500, no failed handler, no hang, and it works afterwards."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sidecar.support import SANDBOX_TOKEN, Sidecar
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN

pytestmark = pytest.mark.root

ROUTES = [
    ("POST", "/v1/exec"), ("POST", "/v1/ops"), ("GET", "/v1/ops"), ("GET", "/v1/ops/known"), ("DELETE", "/v1/ops/known"),
    ("GET", "/v1/ops/known/stream"), ("GET", "/v1/ops/known/output"), ("POST", "/v1/ops/known/stdin"),
    ("POST", "/v1/ops/known/signal"), ("POST", "/v1/ops/known/resize"), ("POST", "/v1/ops/known/detach"),
    ("PUT", "/v1/files"), ("GET", "/v1/files"), ("POST", "/v1/upload"), ("GET", "/v1/download"),
    ("GET", "/v1/read-file"), ("GET", "/v1/files/stat"), ("GET", "/v1/files/list"), ("POST", "/v1/files/mkdir"),
    ("POST", "/v1/files/move"), ("POST", "/v1/files/chmod"), ("GET", "/v1/state"), ("GET", "/v1/logs"),
    ("GET", "/healthz"), ("POST", "/v1/tcp"), ("POST", "/v1/claim"),
]  # fmt: skip
NAMES = [
    "command", "shell", "working_dir", "cwd", "env", "timeout", "user", "stdin", "id", "pty", "detach", "output_limit",
    "memory", "limits", "path", "mode", "group", "parents", "source", "target", "overwrite", "signal", "tree", "cols",
    "rows", "sandbox_id", "token", "tenant", "network", "idle_timeout", "workdir", "start_command", "meta", "secrets",
]  # fmt: skip
QUERIES = ["path", "mode", "user", "group", "parents", "offset", "length", "follow", "limit", "cursor", "recursive",
           "wait", "stream", "tail", "port", "eof"]  # fmt: skip

SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["/tmp", "/etc/passwd", "..", "0644", "nobody", "TERM", "9", "sh", "known", "\0", "/dev/null"])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
FUZZ = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A command that a document names runs for real, in the sandbox; none may run for ever.
HEADERS = {"Authorization": f"Bearer {SANDBOX_TOKEN}"}


def client(box: Sidecar) -> httpx.Client:
    # Without TLS: to read all authorities' certificates takes 24 ms of a core for each of the many clients.
    transport = httpx.HTTPTransport(uds=box.socket, verify=False)
    return httpx.Client(transport=transport, base_url="http://sidecar", timeout=50)


def check(answer: httpx.Response) -> None:
    if answer.status_code >= 500:
        assert answer.status_code in (502, 503, 507), (answer.status_code, answer.text)
        assert answer.json()["error"] in ("refused", "busy", "disk_full"), answer.text
    elif answer.status_code >= 400:
        document = answer.json()
        assert document["error"]
        assert answer.request.method == "HEAD" or document.get("message") or "stdout" in document


@pytest.mark.longest
async def test_any_document(box: Sidecar) -> None:
    @FUZZ
    @given(route=st.sampled_from(ROUTES), document=DOCUMENTS)
    def fuzz(route: tuple[str, str], document: dict[str, Any]) -> None:
        if route[1] in ("/v1/exec", "/v1/ops"):
            document.setdefault("command", "true")
            if not isinstance(document.get("timeout"), str | list | dict | bool):
                document["timeout"] = 1
        token = INSTANCE_TOKEN if route[1] == "/v1/claim" else SANDBOX_TOKEN
        with client(box) as http:
            check(
                http.request(
                    *route,
                    content=json.dumps(document),
                    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                )
            )

    await box.exec("true", op="known")
    await asyncio.to_thread(fuzz)
    assert (await box.exec("echo still here"))["stdout"] == "still here\n"


@pytest.mark.longest
async def test_any_query(box: Sidecar) -> None:
    texts = st.text(max_size=20) | st.sampled_from(
        ["/tmp/x", "1", "-1", "0644", "root", "1e400", "nan", "99999999999999999999"]
    )
    queries = st.lists(st.tuples(st.sampled_from(QUERIES), texts), max_size=5)

    @FUZZ
    @given(route=st.sampled_from(ROUTES), query=queries, body=st.binary(max_size=50))
    def fuzz(route: tuple[str, str], query: list[tuple[str, str]], body: bytes) -> None:
        if route[1].endswith("/tcp"):
            return
        safe = [(name, re.sub("[\ud800-\udfff]", "?", text)) for name, text in query if name != "wait"]
        with client(box) as http:
            check(http.request(*route, params=safe, content=body, headers=HEADERS))

    await box.exec("true", op="known")
    await asyncio.to_thread(fuzz)
    assert (await box.exec("echo still here"))["stdout"] == "still here\n"


WORDS = st.sampled_from(
    [
        b"GET", b"POST", b" ", b"/healthz", b"/v1/exec", b"/v1/files?path=/x", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n",
        b"Host: x", b"Content-Length: ", b"5", b"-1", b"99999999999999999999", b"Transfer-Encoding: chunked", b"0\r\n\r\n",
        b"ffffffffffffffffff\r\n", b"Connection: close", b"Connection: Upgrade", b"Upgrade: sandlot-tcp", b"Expect: 100-continue",
        b"Authorization: Bearer ", SANDBOX_TOKEN.encode(), b"{}", b"\0", b"\xff", b": ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"%zz%00", b"a" * 40_000,
    ]
)  # fmt: skip
STATUS = re.compile(rb"\AHTTP/1\.[01] (\d{3}) ")


async def test_any_bytes(box: Sidecar) -> None:
    def talk(data: bytes) -> bytes:
        """Send everything and its end; the sidecar has to close the connection soon."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(50)
            sock.connect(box.socket)
            answer = b""
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while part := sock.recv(65536):
                    answer += part
            except (BrokenPipeError, ConnectionResetError):
                pass  # it closed before it had read all of it
            return answer

    @FUZZ
    @given(data=st.lists(WORDS | st.binary(max_size=8), max_size=25).map(b"".join))
    def fuzz(data: bytes) -> None:
        found = STATUS.match(talk(data))
        assert found is None or int(found[1]) < 500 or int(found[1]) == 503

    await asyncio.to_thread(fuzz)
    assert (await box.exec("echo still here"))["stdout"] == "still here\n"
