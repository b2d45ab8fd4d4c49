"""One command that the server runs: a real process whose output becomes frames."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from sandlot._protocol.frames import encode


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
