"""A real sidecar process for tests: started with a config file, spoken to over its Unix socket, checked for leaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.complaints import WARNINGS_SHOWN, assert_no_complaints
from tests.executor.container import remove_group
from tests.sidecar.processes import descendants, gone
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN, Receiver
from tests.waiting import SECONDS

SANDBOX_TOKEN = "sandbox-token-of-a-test"
MEMORY = 512 << 20


class Sidecar:
    """One instance. `start` again after `kill` is its restart over the same state."""

    def __init__(self, **config: Any) -> None:
        self.directory = tempfile.mkdtemp(prefix="sc-", dir="/tmp")
        self.socket = f"{self.directory}/sidecar.sock"
        self.webhooks = Receiver(f"{self.directory}/hook.sock")
        self.cgroup = Cgroup()
        root = {
            "lower": ["/"],
            "mask": [],
            "overlay": True,
            "disk": 64 << 20,
            "env": {},
            "workdir": "/",
            "user": "root",
        }
        self.config: dict[str, Any] = {
            "instance_id": "i-00000000000000aa", "token": INSTANCE_TOKEN, "listen": f"unix:{self.socket}",
            "state_dir": self.directory, "webhook": f"unix:{self.webhooks.path}:/internal/sidecar", "heartbeat": 0,
            "template": "t-test", "hostname": "sandbox", "root": {**root, **config.pop("root", {})}, "target_pid": None,
            "limits": {"cpu": 2.0, "memory": MEMORY, "pids": 256}, "cgroup_parent": self.cgroup.name, "ops": {},
            **config,
        }  # fmt: skip
        self.process: asyncio.subprocess.Process | None = None
        self.stderr = Path(self.directory) / "stderr"
        self.token = SANDBOX_TOKEN
        self.client = self._new_client()

    def _new_client(self, url: str | None = None) -> httpx.AsyncClient:
        return plain_client(None if url else self.socket, url, timeout=60.0)

    async def reconnect(self, url: str | None = None) -> None:
        """A client with fresh connections, over the Unix socket or to a URL."""
        await self.client.aclose()
        self.client = self._new_client(url)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def launch(self) -> None:
        """Start the process without waiting for anything."""
        path = Path(self.directory) / "config.json"
        path.write_text(json.dumps(self.config))
        path.chmod(0o600)
        self.cgroup.make()
        with self.stderr.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sandlot_sidecar",
                "--config",
                str(path),
                stderr=log,
                stdout=log,
                cwd="/",
                env={**os.environ, **WARNINGS_SHOWN},
            )

    async def start(self) -> Sidecar:
        """Start it and wait for `ready`."""
        ready = sum(event["event"] == "ready" for event in self.webhooks.events)
        if self.webhooks._server is None:
            await self.webhooks.start()
        await self.launch()
        try:
            await self.webhooks.wait("ready", count=ready + 1)
        except TimeoutError:
            raise AssertionError(f"not ready: {self.log()}; {self.about_end()}") from None
        return self

    async def claim(self, **fields: Any) -> dict[str, Any]:
        """Claim it; returns the state."""
        answer = await self.instance("POST", "/v1/claim", json=self.claim_body(**fields))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def claim_body(self, **fields: Any) -> dict[str, Any]:
        return {"sandbox_id": "sb-test", "token": self.token, "tenant": "tenant-a", **fields}

    async def instance(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request with the instance token."""
        headers = {"Authorization": f"Bearer {INSTANCE_TOKEN}", **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request with the sandbox token."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)

    async def exec(self, command: str | list[str], *, op: str | None = None, **fields: Any) -> dict[str, Any]:
        """The JSON of `exec`."""
        headers = {"X-Sandlot-Op": op} if op else {}
        body = {"command": command, **fields}
        # The command's own time limit comes first.
        patience = 60.0 + (fields.get("timeout") or 0)
        answer = await self.call("POST", "/v1/exec", json=body, headers=headers, timeout=patience)
        assert answer.status_code in (200, 408), answer.text
        return answer.json()

    async def op(self, command: str | list[str], *, wait: float = 0, **fields: Any) -> dict[str, Any]:
        """Create an op and return its document."""
        answer = await self.call("POST", f"/v1/ops?wait={wait}", json={"command": command, **fields})
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    async def ended(self, op_id: str, *, wait: float = 50) -> dict[str, Any]:
        """The document of an op that has ended."""
        document = (await self.call("GET", f"/v1/ops/{op_id}?wait={wait}")).json()
        assert document["state"] == "ended", document
        return document

    async def frames(self, path: str, *, method: str = "GET", **options: Any) -> list[tuple[str, bytes]]:
        """All frames of a stream, to its end."""
        answer = await self.call(method, path, **options)
        assert answer.status_code == 200, answer.text
        return parse_frames(answer.content)

    def stream(self, method: str, path: str, **options: Any) -> Any:
        """An answer that is read as it comes."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return self.client.stream(method, path, headers=headers, **options)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        return await asyncio.open_unix_connection(self.socket)

    def executor_pid(self) -> int:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0])

    def descriptors(self) -> tuple[int, int]:
        """Open descriptors of the server and the executor."""
        server, executor = (f"/proc/{pid}/fd" for pid in (self.pid, self.executor_pid()))
        return len(os.listdir(server)), len(os.listdir(executor))

    def tree(self) -> set[int]:
        """The processes of this sidecar."""
        return descendants(self.pid)

    def log(self) -> str:
        return self.stderr.read_text()

    def about_end(self) -> str:
        """What else is known of an end that was not asked for."""
        return ""

    async def kill(self) -> None:
        """SIGKILL for the server; returns when it has taken its executor and all below along."""
        assert self.process is not None
        tree = self.tree()
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await gone(tree)

    async def wait_exit(self, *, timeout: float = SECONDS) -> int:
        assert self.process is not None
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def close(self) -> None:
        """End it, and look that nothing of it is left."""
        tree: set[int] = set()
        try:
            async with contextlib.AsyncExitStack() as sockets:
                sockets.push_async_callback(self.webhooks.stop)
                sockets.push_async_callback(self.client.aclose)
                if self.process is not None and self.process.returncode is None:
                    tree = self.tree()
                    # One that the test has ended may be gone before its exit is seen here.
                    with contextlib.suppress(httpx.TransportError):
                        await self.instance("POST", "/v1/end", json={"verdict": "deleted"})
                    status = await self.wait_exit()
                    assert status == 0, (status, self.about_end(), self.log())
            await self._nothing_left(tree)
            assert "handler_failed" not in self.log(), self.log()
            assert "task_failed" not in self.log(), self.log()
            assert "loop_failure" not in self.log(), self.log()
            assert_no_complaints(self.log())
        finally:
            if self.process is not None and self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            await gone(tree)
            self.cgroup.remove()
            shutil.rmtree(self.directory)

    async def _nothing_left(self, tree: set[int]) -> None:
        await gone(tree)
        assert self.directory not in mounts()
        known = {"claim.json", "stderr", "config.json", "ops.journal", "hook.sock", "restored"}
        assert set(os.listdir(self.directory)) <= known, os.listdir(self.directory)


def plain_client(socket: str | None, url: str | None, *, timeout: float) -> httpx.AsyncClient:
    """Without TLS: to read all authorities' certificates takes 24 ms of a core for each client."""
    transport = httpx.AsyncHTTPTransport(uds=socket, verify=False)
    return httpx.AsyncClient(transport=transport, base_url=url or "http://sidecar", timeout=timeout)


class Cgroup:
    """The cgroup that the local backend would make for an instance (version 1, where it can be written)."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._paths: list[Path] = []
        if os.geteuid() != 0:
            return
        for controller in ("memory", "pids", "cpu", "freezer"):
            base = Path("/sys/fs/cgroup") / controller
            if (base / "tasks").exists() and base.resolve() not in self._paths:
                self._paths.append(base.resolve())
        if self._paths:
            self.name = f"sandlot-sc/{os.urandom(6).hex()}"

    def make(self) -> None:
        for base in self._paths:
            directory = base / (self.name or "")
            directory.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        for base in self._paths:
            directory = base / (self.name or "")
            if directory.is_dir():
                for child in [*sorted(directory.rglob("*"), reverse=True), directory]:
                    if child.is_dir():
                        remove_group(child)


def parse_frames(data: bytes) -> list[tuple[str, bytes]]:
    """Frames of a byte string that ends with a whole one."""
    frames, position = [], 0
    while position < len(data):
        length = int.from_bytes(data[position + 1 : position + 5], "big")
        assert position + 5 + length <= len(data), "the last frame is cut"
        frames.append((chr(data[position]), data[position + 5 : position + 5 + length]))
        position += 5 + length
    return frames


def payload(frames: list[tuple[str, bytes]], kind: str) -> bytes:
    """The joined payloads of one kind."""
    return b"".join(data for found, data in frames if found == kind)


def tells_why(answer: dict[str, Any], reason: str) -> None:
    """For a client that knows no verdicts the reason is the last line of stderr."""
    assert answer["message"] == reason, answer
    assert ("\n" + answer["stderr"]).endswith(f"\nsandlot: {reason}\n"), answer


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()
