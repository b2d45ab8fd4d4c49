"""Drives a real executor process over its wire, as the server would."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from sandlot_sidecar.executor import wire

from tests.waiting import SECONDS

ENTRY = (
    "import os, socket, sys\n"
    "from sandlot_sidecar.executor.main import run\n"
    "run(socket.socket(fileno=int(sys.argv[1])))\n"
    "os._exit(0)\n"
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Refused(Exception):
    """The executor's error answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer.get("message"))
        self.code = answer["error"]
        self.field = answer.get("field")


def wait_readable(fd: Any, seconds: float = SECONDS) -> None:
    if not select.select([fd], [], [], seconds)[0]:
        raise TimeoutError("nothing came")


class Ended(dict[str, Any]):
    """The `ended` document, with what the command wrote."""

    stdout: bytes = b""
    stderr: bytes = b""


class Command:
    """One op on one runner."""

    def __init__(self, runner: RunnerChannel, *, outputs: list[int], stdin: int | None) -> None:
        self.runner = runner
        self.stdin = stdin
        self.pid = 0
        self._outputs = outputs
        self._data = dict.fromkeys(outputs, b"")

    def read_until(self, marker: bytes, seconds: float = SECONDS) -> bytes:
        """Read standard output until it holds the marker."""
        fd = self._outputs[0]
        while marker not in self._data[fd]:
            wait_readable(fd, seconds)
            part = os.read(fd, 65536)
            if not part:
                raise EOFError(self._data[fd])
            self._data[fd] += part
        return self._data[fd]

    def wait(self, seconds: float = SECONDS) -> Ended:
        """Read output and wait for the end; what is in the pipes by then is kept."""
        deadline = time.monotonic() + seconds
        open_fds = set(self._outputs)
        ended: Ended | None = None
        while ended is None:
            left = deadline - time.monotonic()
            ready = select.select([*open_fds, self.runner.sock], [], [], max(0, left))[0]
            if not ready:
                raise TimeoutError("the op does not end")
            for fd in ready:
                if fd is self.runner.sock:
                    message = self.runner.receive(seconds)[0]
                    if "ended" in message:
                        ended = Ended(message["ended"])
                    continue
                part = self._read(fd)
                if not part:
                    open_fds.discard(fd)
                self._data[fd] += part
        for fd in self._outputs:
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError):
                while part := self._read(fd):
                    self._data[fd] += part
        ended.stdout = self._data[self._outputs[0]]
        ended.stderr = self._data[self._outputs[-1]]
        self.close()
        return ended

    @staticmethod
    def _read(fd: int) -> bytes:
        try:
            return os.read(fd, 1 << 20)
        except BlockingIOError:
            raise
        except OSError:
            return b""

    def close(self) -> None:
        for fd in {*self._outputs, *([self.stdin] if self.stdin is not None else [])}:
            os.close(fd)
        self._outputs = []
        self.stdin = None


class RunnerChannel:
    """A runner's channel."""

    def __init__(self, fd: int) -> None:
        self.sock = socket.socket(fileno=fd)
        self._commands: list[Command] = []

    def receive(self, seconds: float = SECONDS) -> tuple[dict[str, Any], list[int]]:
        wait_readable(self.sock, seconds)
        received = wire.receive_packet(self.sock)
        if received is None:
            raise EOFError("the runner is gone")
        return received

    def ask(self, message: dict[str, Any], seconds: float = SECONDS) -> dict[str, Any]:
        wire.send_packet(self.sock, message)
        return self.receive(seconds)[0]

    def start(
        self, command: str | list[str], *, env: dict[str, str] | None = None, stdin: bool = False, **run: Any
    ) -> Command | dict[str, Any]:
        """Start a command; a refusal is returned as it came."""
        run["env"] = {"PATH": PATH, **(env or {})}
        run.setdefault("mark", f"op-{os.urandom(4).hex()}")
        run["shell" if isinstance(command, str) else "argv"] = command
        if run.get("pty"):
            wire.send_packet(self.sock, {"run": run})
            message, fds = self.receive()
            if "failed" in message:
                return message
            started = self._command(outputs=[fds[0]], stdin=None)
            started.pid = message["started"]
            return started
        in_read, in_write = os.pipe() if stdin else (os.open("/dev/null", os.O_RDONLY), None)
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        started = self._command(outputs=[out_read, err_read], stdin=in_write)
        try:
            wire.send_packet(self.sock, {"run": run}, [in_read, out_write, err_write])
        finally:
            wire.close_all([in_read, out_write, err_write])
        message, _ = self.receive()
        if "failed" in message:
            started.close()
            return message
        started.pid = message["started"]
        return started

    def _command(self, *, outputs: list[int], stdin: int | None) -> Command:
        made = Command(self, outputs=outputs, stdin=stdin)
        self._commands.append(made)
        return made

    def run(self, command: str | list[str], *, seconds: float = SECONDS, **run: Any) -> Ended:
        started = self.start(command, **run)
        assert isinstance(started, Command), started
        return started.wait(seconds)

    def close(self) -> None:
        self.sock.close()

    def close_commands(self) -> None:
        """Close what commands have open that were not waited for, or whose runner has gone."""
        for command in self._commands:
            command.close()


class Driver:
    """The executor and its control socket; `first` is code that its process runs before."""

    def __init__(self, *, prefix: list[str] | None = None, first: str = "") -> None:
        ours, theirs = socket.socketpair()
        self.sock = ours
        self.control = theirs.fileno()  # the other end's number in the executor
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*(prefix or []), sys.executable, "-c", first + ENTRY, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._decoder = wire.Decoder()
        self._seq = 0
        self._answers: dict[int, tuple[dict[str, Any], list[int]]] = {}
        self._runners: list[RunnerChannel] = []

    def send(self, do: str, **arguments: Any) -> int:
        self._seq += 1
        wire.send(self.sock, {"seq": self._seq, "do": do, **arguments})
        return self._seq

    def answer(self, seq: int, seconds: float = SECONDS) -> tuple[dict[str, Any], list[int]]:
        while seq not in self._answers:
            self.receive(seconds)
        answer, fds = self._answers.pop(seq)
        if "error" in answer:
            raise Refused(answer)
        return answer, fds

    def receive(self, seconds: float = SECONDS) -> None:
        wait_readable(self.sock, seconds)
        messages = self._decoder.receive(self.sock)
        if messages is None:
            raise EOFError("the executor is gone")
        for message, fds in messages:
            if "event" in message:
                self.events.append(message)
            else:
                self._answers[message["seq"]] = (message, fds)

    def wait_event(self, seconds: float = SECONDS) -> dict[str, Any]:
        while not self.events:
            self.receive(seconds)
        return self.events.pop(0)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        answer, fds = self.answer(self.send(do, **arguments))
        wire.close_all(fds)
        return answer

    def ask_fd(self, do: str, **arguments: Any) -> tuple[dict[str, Any], int]:
        answer, fds = self.answer(self.send(do, **arguments))
        assert len(fds) == 1, answer
        return answer, fds[0]

    def runner(self) -> RunnerChannel:
        channel = RunnerChannel(self.ask_fd("runner")[1])
        self._runners.append(channel)
        return channel

    def run(self, command: str | list[str], **run: Any) -> Ended:
        """Run one command on a runner of its own."""
        runner = self.runner()
        try:
            return runner.run(command, **run)
        finally:
            runner.close()

    def write(self, path: str, data: bytes, **arguments: Any) -> dict[str, Any]:
        answer, fd = self.ask_fd("file", op="create", path=path, **arguments)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            self.ask("file", op="abort", temp=answer["temp"])
            raise
        finally:
            os.close(fd)
        return self.ask("file", op="commit", temp=answer["temp"], path=path)

    def read(self, path: str) -> bytes:
        _, fd = self.ask_fd("file", op="open", path=path)
        with open(fd, "rb") as file:
            return file.read()

    def close(self) -> None:
        for runner in self._runners:
            runner.close()
            runner.close_commands()
        self.sock.close()
        self._decoder.close()
        for _, fds in self._answers.values():
            wire.close_all(fds)
        self._answers.clear()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise
