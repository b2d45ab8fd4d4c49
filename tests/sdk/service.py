"""A small real server that speaks the documented routes, runs real commands, and fails on demand.

It stands in for a gateway with one sidecar behind it, so that lost connections, busy answers and dead sandboxes can
be had at an exact moment. The same tests run against the real stack.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sandlot._protocol.frames import encode

Headers = dict[str, str]


@dataclass
class Fault:
    """What to do instead of a plain answer to the next request whose path ends with `route`.

    `status` answers so without doing anything; `lose` does the work and closes without an answer; `refuse` closes
    before the work; `cut` closes a stream, or the body of a `status`, after so many bytes.
    """

    route: str
    status: int = 0
    body: dict[str, object] = field(default_factory=dict)
    headers: Headers = field(default_factory=dict)
    lose: bool = False
    refuse: bool = False
    cut: int | None = None
    stop: bool = False  # with `cut`: as if this were the end
    hold: bool = False  # never answer; with `status`: its head, and never its body


@dataclass
class Seen:
    method: str
    path: str
    headers: Headers
    body: bytes


class Op:
    """One command: its frames grow while it runs."""

    def __init__(self, spec: dict[str, object], *, env: dict[str, str]) -> None:
        self.spec = spec
        self.env = env
        self.frames = b""
        self.changed = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None
        self.started = asyncio.Event()
        self.document: dict[str, object] | None = None
        self.output = {"stdout": b"", "stderr": b""}
        self.stdin_taken = 0
        self.killed = False
        self.stopped = False
        self.detached = bool(spec.get("detach"))

    def add(self, kind: bytes, payload: bytes) -> None:
        self.frames += encode(kind, payload)
        self.changed.set()
        self.changed = asyncio.Event()

    async def run(self, root: Path) -> None:
        command = self.spec["command"]
        shell = str(self.spec.get("shell") or "bash")
        argv = [shell, "-c", command] if isinstance(command, str) else list(command)  # type: ignore[call-overload]
        stdin = asyncio.subprocess.PIPE if self.spec.get("stdin") else asyncio.subprocess.DEVNULL
        try:
            self.process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self.spec.get("cwd") or root,
                env={**os.environ, **self.env, **(self.spec.get("env") or {})},  # type: ignore[dict-item]
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            self.end("exited", code=127, message=str(error))
            return
        if self.stopped:
            self.kill()
        self.add(b"s", json.dumps({"op_id": self.spec["id"], "pid": self.process.pid}).encode())
        self.started.set()
        text = self.spec.get("input")
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        if text is not None:
            assert self.process.stdin is not None
            self.process.stdin.write(str(text).encode())
            self.process.stdin.close()
        pumps = asyncio.gather(
            self._pump(self.process.stdout, "stdout", b"o"), self._pump(self.process.stderr, "stderr", b"e")
        )
        verdict = "exited"
        try:
            await asyncio.wait_for(self.process.wait(), self.spec.get("timeout"))  # type: ignore[arg-type]
        except TimeoutError:
            verdict = "timeout"
            self.kill()
            await self.process.wait()
        await pumps
        code = self.process.returncode or 0
        if self.killed and verdict == "exited":
            verdict = "killed"
        elif code < 0 and verdict == "exited":
            verdict = "signaled"
        self.end(verdict, code=code)

    def end(self, verdict: str, *, code: int = 0, message: str | None = None) -> None:
        self.document = {
            "op_id": self.spec["id"],
            "state": "ended",
            "verdict": verdict,
            "exit_code": code if code >= 0 else 128 - code,
            "signal": -code if code < 0 else None,
            "message": message,
            "truncated": False,
            "stdout_bytes": len(self.output["stdout"]),
            "stderr_bytes": len(self.output["stderr"]),
            "usage": {"queued": 0.0, "wall": 0.01, "cpu": 0.004, "peak_memory": 9437184},
            "detached": self.detached,
        }
        self.add(b"x", json.dumps(self.document).encode())

    def stop(self) -> None:
        """Also when its process is only about to begin."""
        self.stopped = True
        self.kill()

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            try:
                os.killpg(self.process.pid, 9)
            except ProcessLookupError:
                pass

    async def _pump(self, reader: asyncio.StreamReader, name: str, kind: bytes) -> None:
        while data := await reader.read(65536):
            self.output[name] += data
            self.add(kind, data)

    async def ended(self) -> dict[str, object]:
        while self.document is None:
            await self.changed.wait()
        return self.document


def _refused(document: dict[str, Any]) -> str | None:
    """The first field of a create that a server refuses."""
    if document["docker_image"] == "":
        return "docker_image"
    for limit, least in (("cpu_cores", 0.1), ("memory_gb", 0.03), ("pids", 16)):
        if document.get(limit, least) < least:
            return limit
    for name in document.get("environment_vars") or ():
        if "=" in name:
            return f"environment_vars.{name}"
    return "labels" if "" in document["labels"] else None


class Service:
    """The server, in a thread of its own. Everything it saw is in `seen`; `faults` are used up in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.api_key = "test-key"
        self.faults: deque[Fault] = deque()
        self.seen: list[Seen] = []
        self.ops: dict[str, Op] = {}
        self.sandboxes: dict[str, dict[str, object]] = {}
        self.keys: dict[str, str] = {}
        self.pools: dict[str, dict[str, object]] = {}
        self.exposures: dict[str, dict[str, object]] = {}
        self.lost_verdict: str | None = None
        self.pending_reads = 0  # how many times a new sandbox is told to be PENDING
        self.token = "token-1"
        self.connections = 0
        self.open_now = 0
        self._tasks: set[asyncio.Task[object]] = set()
        self._runs: set[asyncio.Task[object]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", 0, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for op in self.ops.values():
            op.stop()
        if self._runs:  # each ends with its process: a cancelled one would leave its pipes open
            await asyncio.wait(self._runs, timeout=30)
        for task in self._tasks | self._runs:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._runs, return_exceptions=True)

    def calls(self, route: str, method: str | None = None) -> list[Seen]:
        """The requests whose path ended so."""
        return [
            seen
            for seen in self.seen
            if seen.path.partition("?")[0].endswith(route) and method in (None, seen.method)
        ]

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_now += 1
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open_now -= 1
            self._tasks.discard(task)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await self._body(reader, headers)
        self.seen.append(Seen(method, path, headers, body))
        plain = unquote(path.partition("?")[0])
        fault = next((item for item in self.faults if plain.endswith(item.route)), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.hold:
                if fault.status:
                    _raw(writer, fault.status, b"", fault.headers, missing=1)
                await asyncio.Event().wait()  # until the client leaves
            if fault.refuse:
                return False
            if fault.status:
                if fault.cut is not None:
                    _raw(writer, fault.status, b"x" * fault.cut, fault.headers, missing=1)
                    return False
                return _answer(writer, fault.status, fault.body, fault.headers)
        query = {
            key: values[0] for key, values in parse_qs(urlsplit(path).query, errors="surrogateescape").items()
        }
        query["_raw"] = urlsplit(path).query
        handler = self._control if plain.startswith("/api/v1") else self._data
        answer = await handler(method, plain, query, headers, body, writer, fault)
        if fault is not None and fault.lose:
            return False
        if answer is None:
            return False
        status, document, extra = answer
        return _answer(writer, status, document, extra)

    async def _body(self, reader: asyncio.StreamReader, headers: Headers) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size = int(await reader.readline(), 16)
                body += await reader.readexactly(size)
                await reader.readexactly(2)
                if not size:
                    return body
        return await reader.readexactly(int(headers.get("content-length", 0)))

    # the control API

    async def _control(self, method, path, query, headers, body, writer, fault):  # type: ignore[no-untyped-def]
        if headers.get("authorization") != f"Bearer {self.api_key}":
            return 401, {"detail": "bad API key"}, {}
        parts = path.removeprefix("/api/v1").strip("/").split("/")
        document = json.loads(body) if body else {}
        if parts == ["sandbox"] and method == "POST":
            return self._create(document)
        if parts == ["sandbox"] and method == "GET":
            wanted = parse_qs(query["_raw"]).get("labels", [])
            found = [
                box
                for box in reversed(self.sandboxes.values())
                if set(wanted) <= set(box["labels"])  # type: ignore[call-overload]
                and (query.get("is_active") != "true" or box["status"] != "TERMINATED")
            ]
            page, size = int(query["page"]), int(query["per_page"])
            part = found[(page - 1) * size : page * size]
            return 200, {"sandboxes": part, "has_next": page * size < len(found)}, {}
        if parts == ["sandbox"] and method == "DELETE":
            done = [name for name in document.get("sandbox_ids", []) if self._delete(name)]
            failed = [
                {"sandbox_id": name, "error": "no such sandbox"}
                for name in document.get("sandbox_ids", [])
                if name not in done
            ]
            return 200, {"succeeded": done, "failed": failed, "message": ""}, {}
        if parts == ["user", "whoami"]:
            return 200, {"data": {"id": "default"}}, {}
        if parts == ["stats"]:
            return 200, {"sandboxes": {"RUNNING": 1}, "pools": [], "usage": []}, {}
        if parts[0] == "pools":
            return self._pool(method, parts, document)
        if parts[0] == "sandbox" and len(parts) > 1:
            return self._one(method, parts[1:], document)
        return 404, {"detail": f"no route {path}"}, {}

    def _create(self, document):  # type: ignore[no-untyped-def]
        field = _refused(document)
        if field is not None:
            return 422, {"detail": f"{field}: no", "errors": [{"param": field, "details": "no"}]}, {}
        key = document["idempotency_key"]
        if key not in self.keys:
            name = f"sb-{len(self.sandboxes) + 1}"
            self.keys[key] = name
            self.sandboxes[name] = {
                "id": name,
                "name": document.get("name") or name,
                "dockerImage": document["docker_image"],
                "status": "PENDING" if self.pending_reads else "RUNNING",
                "cpuCores": document.get("cpu_cores", 1.0),
                "memoryGB": document.get("memory_gb", 1.0),
                "diskSizeGB": document.get("disk_size_gb", 5.0),
                "labels": document["labels"],
                "environmentVars": document.get("environment_vars") or {},
                "createdAt": "2026-01-01T00:00:00Z",
                "gatewayAuth": self._auth(name),
                "poolHit": True,
                "timings": {"queued": 0.0, "start": 0.0, "claim": 0.001},
            }
        return 201, self.sandboxes[self.keys[key]], {}

    def _auth(self, name: str) -> dict[str, object]:
        return {"token": self.token, "gateway_url": self.url, "user_ns": "sbx", "job_id": name}

    def _delete(self, name: str) -> bool:
        if name not in self.sandboxes:
            return False
        self.sandboxes[name]["status"] = "TERMINATED"
        return True

    def _pool(self, method, parts, document):  # type: ignore[no-untyped-def]
        if method == "GET":
            for pool in self.pools.values():
                pool.update(ready=pool["size"], starting=0)
            return 200, {"pools": list(self.pools.values())}, {}
        if method == "PUT":
            old = self.pools.get(parts[1])
            if old is None and "size" not in document:
                return 422, {"detail": "size: needed", "errors": [{"param": "size", "details": "needed"}]}, {}
            pool = {"name": parts[1], "image": "host", **(old or {}), **document}
            self.pools[parts[1]] = {**pool, "ready": 0, "starting": pool["size"]}
            return 200, self.pools[parts[1]], {}
        if self.pools.pop(parts[1], None) is None:
            return 404, {"detail": "no such pool"}, {}
        return 200, {}, {}

    def _one(self, method, parts, document):  # type: ignore[no-untyped-def]
        name = parts[0]
        box = self.sandboxes.get(name)
        if box is None:
            return 404, {"detail": f"no sandbox {name}"}, {}
        if parts[1:] == ["auth"]:
            return 200, self._auth(name), {}
        if parts[1:] == ["reset"]:
            shutil.rmtree(self.root)
            self.root.mkdir()
            return 200, {"equal": True}, {}
        if parts[1:2] == ["expose"]:
            return self._expose(method, name, parts[2:], document)
        if method == "DELETE":
            self._delete(name)
            return 200, {"success": True, "message": ""}, {}
        if box["status"] == "PENDING":
            self.pending_reads -= 1
            if self.pending_reads <= 0:
                box["status"] = (self.lost_verdict and "ERROR") or "RUNNING"
                box["verdict"] = self.lost_verdict
        return 200, {key: value for key, value in box.items() if key != "gatewayAuth"}, {}

    def _expose(self, method, name, parts, document):  # type: ignore[no-untyped-def]
        if method == "POST":
            exposure = {
                "exposure_id": f"ex-{len(self.exposures) + 1}",
                "sandbox_id": name,
                "port": document["port"],
                "protocol": document["protocol"],
                "name": document.get("name"),
                "url": f"{self.url}/expose/ex-{len(self.exposures) + 1}",
                "tls_socket": "",
                "external_endpoint": "127.0.0.1:4242" if document["protocol"] == "TCP" else None,
            }
            self.exposures[str(exposure["exposure_id"])] = exposure
            return 200, exposure, {}
        if method == "GET":
            return 200, {"exposures": list(self.exposures.values())}, {}
        del self.exposures[parts[0]]
        return 200, {"success": True}, {}

    # the data plane

    async def _data(self, method, path, query, headers, body, writer, fault):  # type: ignore[no-untyped-def]
        if path == "/readyz":
            return 200, {}, {}
        _, _, name, *route = path.split("/", 4)
        rest = "/".join(route)
        if headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"error": "unauthorized"}, {}
        if self.sandboxes.get(name, {}).get("status") != "RUNNING":
            lost = {
                "error": "sandbox_not_found",
                "verdict": self.lost_verdict or "deleted",
                "message": "gone",
            }
            return 502, lost, {}
        if rest == "exec":
            return await self._exec(headers, json.loads(body), name)
        if rest == "logs":
            _raw(writer, 200, b"start command's output\n", {"Content-Type": "text/plain"})
            return None
        if rest.startswith("ops"):
            return await self._ops(method, name, rest.split("/")[1:], query, body, writer, fault)
        if rest.startswith("files"):
            return self._files(
                method, rest.removeprefix("files").strip("/"), query, headers, body, writer, fault
            )
        return 404, {"error": "no_such_route"}, {}

    def _spawn(self, coroutine: Awaitable[object]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    def _start(self, spec, name) -> Op:  # type: ignore[no-untyped-def]
        op = self.ops[spec["id"]] = Op(spec, env=self.sandboxes[name]["environmentVars"])  # type: ignore[arg-type]
        if spec.get("user") == "nobody-here":
            op.output["stderr"] = b"sandlot: user: no such user\n"
            op.add(b"e", op.output["stderr"])
            op.end("start_failed", code=126, message="user: no such user")
            op.started.set()
        elif self.lost_verdict:
            op.end(self.lost_verdict, message="the machine went away")
            op.started.set()
        else:
            self._spawn(op.run(self.root))
        return op

    async def _exec(self, headers, document, sandbox):  # type: ignore[no-untyped-def]
        name = headers["x-sandlot-op"]
        op = self.ops.get(name)
        if op is None:
            spec = {
                "id": name,
                "command": document["command"],
                "env": document.get("env"),
                "cwd": document.get("working_dir"),
                "shell": document.get("shell"),
                "timeout": document.get("timeout"),
                "user": document.get("user"),
                "input": document.get("stdin"),
                "stdin": "stdin" in document,
            }
            op = self._start(spec, sandbox)
        end = await op.ended()
        answer = {key: value.decode("utf-8", "replace") for key, value in op.output.items()} | end
        return (408 if end["verdict"] == "timeout" else 200), answer, {}

    async def _ops(self, method, sandbox, parts, query, body, writer, fault):  # type: ignore[no-untyped-def]
        offset = int(query.get("offset", 0))
        if not parts:
            spec = json.loads(body)
            op = self.ops.get(spec["id"])
            if op is not None and op.spec != spec:
                return 409, {"error": "op_conflict", "message": "another command"}, {}
            return await self._stream(op or self._start(spec, sandbox), offset, writer, fault)
        op = self.ops.get(parts[0])
        if op is None:
            return 404, {"error": "no_such_op", "message": "no such op"}, {}
        action = parts[1] if len(parts) > 1 else ""
        if action == "stream":
            return await self._stream(op, offset, writer, fault)
        if action == "output":
            _raw(writer, 200, op.output[query["stream"]], {})
            return None
        if action == "stdin":
            await op.started.wait()
            assert op.process is not None
            assert op.process.stdin is not None
            if offset > op.stdin_taken:
                return 409, {"error": "stdin_gap", "offset": op.stdin_taken}, {}
            fresh = body[op.stdin_taken - offset :]
            op.stdin_taken += len(fresh)
            op.process.stdin.write(fresh)
            await op.process.stdin.drain()
            if query.get("eof"):
                op.process.stdin.close()
            return 200, {"offset": op.stdin_taken}, {}
        if action == "signal":
            assert op.process is not None
            number = json.loads(body)["signal"]
            os.killpg(op.process.pid, {"TERM": 15, "INT": 2}.get(number, number))
            return 200, {}, {}
        if action == "detach":
            op.detached = True
            return 200, {}, {}
        if method == "DELETE":
            await op.started.wait()
            op.killed = True
            op.kill()
            return 200, await op.ended(), {}
        if "wait" in query:
            await op.ended()
        return 200, op.document or {"op_id": parts[0], "state": "running", "detached": op.detached}, {}

    async def _stream(self, op, offset, writer, fault):  # type: ignore[no-untyped-def]
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.sandlot.frames\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        limit = fault.cut if fault is not None else None
        sent = 0
        while True:
            data = op.frames[offset:]
            if limit is not None:
                data = data[: limit - sent]
            if data:
                offset += len(data)
                sent += len(data)
                data = encode(b"k", b"") + data
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
            if limit is not None and sent >= limit:
                if fault.stop:
                    writer.write(b"0\r\n\r\n")
                    await writer.drain()
                return
            if op.document is not None and offset >= len(op.frames):
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return
            await op.changed.wait()

    def _files(self, method, action, query, headers, body, writer, fault):  # type: ignore[no-untyped-def]
        document = json.loads(body) if action in ("mkdir", "move", "chmod") else {}
        path = self._inside(query.get("path") or document.get("path") or document.get("source"))
        if action == "" and method == "PUT":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            path.chmod(int(query.get("mode", "0644"), 8))
            return 200, {"path": str(path), "size": len(body)}, {}
        if action == "mkdir":
            there = path.exists()
            path.mkdir(parents=document["parents"], exist_ok=document["parents"])
            if not there:
                path.chmod(int(document.get("mode", "0755"), 8))
            return 200, {}, {}
        if not path.exists():
            return 404, {"error": "not_found", "message": "no such file"}, {}
        if action == "":
            return (
                self._download(path, headers, writer, fault) if method == "GET" else self._remove(path, query)
            )
        if action == "stat":
            return 200, self._stat(path), {}
        if action == "list":
            names = sorted(path.iterdir())
            begin = int(query.get("cursor") or 0)
            part = names[begin : begin + 2]  # pages of two, so that every test of a listing pages
            cursor = str(begin + 2) if begin + 2 < len(names) else None
            return 200, {"entries": [self._stat(item) for item in part], "cursor": cursor}, {}
        if action == "move":
            path.rename(self._inside(document["target"]))
        elif action == "chmod":
            path.chmod(int(document["mode"], 8))
        return 200, {}, {}

    def _inside(self, path: str) -> Path:
        return self.root / path.strip("/")

    def _remove(self, path: Path, query: dict[str, str]):  # type: ignore[no-untyped-def]
        if not path.is_dir():
            path.unlink()
        elif query.get("recursive") == "1":
            shutil.rmtree(path)
        elif any(path.iterdir()):
            return 409, {"error": "not_empty", "message": "not empty"}, {}
        else:
            path.rmdir()
        return 200, {}, {}

    def _download(self, path, headers, writer, fault):  # type: ignore[no-untyped-def]
        data = path.read_bytes()
        size, status, extra = len(data), 200, {"X-Sandlot-Mtime": str(path.stat().st_mtime)}
        window = headers.get("range", "").removeprefix("bytes=")
        if window:
            first, _, last = window.partition("-")
            if not first:
                begin, end = max(0, size - int(last)), size
            else:
                begin, end = int(first), int(last) + 1 if last else size
            if begin >= size:
                return 416, {"error": "range"}, {}
            data, status = data[begin:end], 206
            extra["Content-Range"] = f"bytes {begin}-{min(end, size) - 1}/{size}"
        if fault is not None and fault.cut is not None:
            head = f"HTTP/1.1 {status} OK\r\nContent-Length: {len(data)}\r\n"
            head += "".join(f"{key}: {value}\r\n" for key, value in extra.items())
            writer.write(head.encode() + b"\r\n" + data[: fault.cut])
            return None
        _raw(writer, status, data, extra)
        return None

    def _stat(self, path: Path) -> dict[str, object]:
        about = path.stat()
        return {
            "path": "/" + str(path.relative_to(self.root)),
            "type": "dir" if path.is_dir() else "file",
            "size": about.st_size,
            "mode": f"{about.st_mode & 0o7777:04o}",
            "uid": about.st_uid,
            "gid": about.st_gid,
            "mtime": about.st_mtime,
        }


def _answer(writer: asyncio.StreamWriter, status: int, document: object, headers: Headers) -> bool:
    _raw(writer, status, json.dumps(document).encode(), {"Content-Type": "application/json", **headers})
    return True


def _raw(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: Headers, *, missing: int = 0
) -> None:
    """`missing`: so many bytes are announced and do not come."""
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    writer.write(
        f"HTTP/1.1 {status} Some\r\nContent-Length: {len(body) + missing}\r\n{lines}\r\n".encode() + body
    )
