"""The executor's loop: one thread that polls for requests of the server and for the exit of its children."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket

from .. import kernel
from . import file_watch, file_worker, files, reaper, syscalls, wire
from .errors import ExecutorError, from_os
from .jobs import Jobs
from .replies import Replies, unexpected
from .setup import set_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .replies import Answer
    from .sandbox import Sandbox

CONNECT_TIMEOUT = 10.0
BACKLOG = 128


class Executor:
    """Serves one control socket."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self._sandbox: Sandbox | None = None
        self._decoder = wire.Decoder()
        self._replies = Replies(control)
        self._jobs = Jobs(self._replies)
        self._ended = False

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox; raises ExecutorError before `setup`."""
        if self._sandbox is None:
            raise ExecutorError("conflict", "the sandbox is not set up: send `setup` first")
        return self._sandbox

    def serve(self) -> None:
        """Serve until `end` or until the server closes the socket."""
        while not self._ended:
            sandbox = self._sandbox
            poll = select.poll()
            for fd in (
                self.control.fileno(),
                *self._jobs.descriptors(),
                *(sandbox.descriptors() if sandbox else ()),
            ):
                poll.register(fd, select.POLLIN)
            ready = [fd for fd, _ in poll.poll(sandbox.poll_timeout_ms() if sandbox else None)]
            if sandbox is not None and not ready and sandbox.ahead.step():
                self._replies.send({"event": "prepared"})
            if sandbox is not None and self._handle_sandbox_events(sandbox, ready):
                continue
            for fd in ready:
                if sandbox is not None and fd in sandbox.runners.children:
                    sandbox.runners.on_ended(fd)
                elif fd in self._jobs.descriptors():
                    self._jobs.on_readable(fd)
            if self.control.fileno() in ready and not self._requests():
                return

    def _handle_sandbox_events(self, sandbox: Sandbox, ready: list[int]) -> bool:
        """Handle events of the sandbox itself; return whether they replaced its runners."""
        sandbox.run_due_work()
        sandbox.ahead.on_ready(ready)
        if sandbox.alarm_fd in ready:
            sandbox.runners.enforce_memory_limit()
        if sandbox.target_fd in ready:
            self._replies.send(sandbox.target_lost())
        if sandbox.init_fd in ready:
            self._replies.send(sandbox.init_lost())
            return True
        return False

    def end(self) -> None:
        """Tear down the sandbox if there is one; idempotent."""
        if self._sandbox is not None:
            self._sandbox.end()
            self._sandbox = None

    def _requests(self) -> bool:
        messages = self._decoder.receive(self.control)
        if messages is None:
            return False
        for message, fds in messages:
            try:
                self._request(message, fds)
            finally:
                wire.close_all(fds)
        return True

    def _request(self, message: dict[str, Any], fds: list[int]) -> None:
        seq = message.get("seq")
        try:
            if message.get("do") in ("file", "connect", "listen"):
                self.sandbox.check_running()
            if message.get("do") == "file" and file_watch.is_watch(message):
                kept = list(fds)
                work = self._watch_work(message, kept)
                fds.clear()
                self._jobs.start_file_job(seq, work, kept)
                return
            if message.get("do") == "file" and file_worker.needs_worker(message):
                self._jobs.start_file_job(seq, self.sandbox.file_work(message))
                return
            if message.get("do") == "file" and files.is_long(message):
                self._jobs.start_file_job(seq, lambda: files.run(message))
                return
            if message.get("do") == "kill":
                runners, runner = self.sandbox.runners, int(message["runner"])
                runners.note_kill(runner)
                self._jobs.start(seq, lambda: (runners.kill(runner), []))
                return
            if message.get("do") == "lost":
                runners, runner = self.sandbox.runners, int(message["runner"])
                facts = runners.lost_op_facts(runner)
                runners.note_kill(runner)
                self._jobs.start(seq, lambda: ({"facts": facts, **runners.kill(runner)}, []))
                return
            if message.get("do") == "disk":
                disk = self.sandbox.disk()
                at_once, grows = disk.quick(message.get("counted")), bool(message.get("grows"))
                if at_once is None:
                    self._jobs.start(seq, lambda: (disk.measure(grows=grows), []))
                else:
                    self._replies.answer(seq, (at_once, []))
                return
            if message.get("do") == "connect":
                port = _port(message)
                connect = self._connect_datagrams if message.get("datagrams") else self._connect
                self._jobs.start(seq, lambda: ({}, [connect(port)]))
                return
            if message.get("do") == "listen":
                address, ports = str(message["address"]), [int(port) for port in message["ports"]]
                self._jobs.start(seq, lambda: ({}, self._listen(address, ports)))
                return
            self._replies.answer(seq, self._do(message, fds))
        except ExecutorError as error:
            self._replies.refuse(seq, error)
        except OSError as error:
            self._replies.refuse(seq, from_os(error))
        except (KeyError, TypeError, ValueError) as error:
            self._replies.refuse(seq, ExecutorError("bad_request", f"bad request: {error}"))
        except Exception as error:  # otherwise it would end the executor and the sandbox
            self._replies.refuse(seq, unexpected(error))

    def _watch_work(self, message: dict[str, Any], fds: list[int]) -> Callable[[], Answer]:
        if file_worker.needs_worker(message):
            return file_watch.with_instance(message, fds, self.sandbox.file_work(message))
        return file_watch.with_instance(message, fds, lambda: files.run(message))

    def _do(self, message: dict[str, Any], fds: list[int]) -> Answer:
        do = message.get("do")
        if do == "runner":
            pid, channel = self.sandbox.runner()
            return {"runner": pid}, [channel.detach()]
        if do == "file":
            return files.run(message)
        if do == "setup":
            if self._sandbox is not None:
                raise ExecutorError("conflict", "the sandbox is set up already")
            self._sandbox = sandbox = set_up(message)
            return sandbox.description(), sandbox.counters()
        if do == "apply":
            return self.sandbox.apply(message, fds), []
        if do == "egress":
            return self.sandbox.egress(message), []
        if do == "full":
            return {"full": self.sandbox.disk().full()}, []
        if do == "usage":
            return self.sandbox.usage(), []
        if do == "alive":
            return {"alive": self.sandbox.alive()}, []
        if do in ("layer", "layers"):  # `layer` where there is one: a server of any version asks for it
            return {}, self.sandbox.layers(merged=bool(message.get("merged")))
        if do in ("check", "record"):
            return self._exchange(str(do)), []
        if do == "prepare":
            return {"prepared": self.sandbox.prepare(message)}, []
        if do == "reset":
            self._jobs.end_all()
            return self.sandbox.reset(message)
        if do == "end":
            self._jobs.end_all()
            self.end()
            self._ended = True
            return {}, []
        raise ExecutorError("bad_request", f"no such request: {do}", field="do")

    def _exchange(self, do: str) -> dict[str, Any]:
        sandbox = self.sandbox
        sandbox.check_running()
        if do == "check":
            return {"fresh": sandbox.exchange.check()}
        sandbox.exchange.record()
        return {}

    def _connect(self, port: int) -> int:
        self.sandbox.enter_network()
        refused: OSError | None = None
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            try:
                with socket.socket(family, socket.SOCK_STREAM) as sock:
                    sock.settimeout(CONNECT_TIMEOUT)
                    sock.connect((host, port))
                    sock.settimeout(None)
                    return sock.detach()
            except OSError as error:
                refused = refused or error
        raise ExecutorError(
            "refused", f"nothing listens on port {port} in the sandbox: start the server first"
        ) from refused

    def _listen(self, address: str, ports: list[int]) -> list[int]:
        self.sandbox.enter_network()
        sockets = [socket.create_server((address, port), backlog=BACKLOG) for port in ports]
        return [sock.detach() for sock in sockets]

    def _connect_datagrams(self, port: int) -> int:
        self.sandbox.enter_network()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", port))
            return sock.detach()


def _port(message: dict[str, Any]) -> int:
    port = message.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ExecutorError("bad_request", "port must be a number from 1 to 65535", field="port")
    return port


def _nothing(number: int, frame: Any) -> None:
    return


def _keep_descriptors() -> None:
    """Make all descriptors above 2 close-on-exec, so that no command inherits one."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError:  # the descriptor of the listing itself
            continue


def _end_with_parent() -> bool:
    """Let the parent's end kill this process; return whether it still has one."""
    parent = os.getppid()
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def run(control: socket.socket) -> None:
    """Run the executor until the server closes the socket or sends `end`; the caller then calls os._exit.

    Call it in a child of the server that has one thread and has not read any secret. The sandbox ends with this
    process.
    """
    if not _end_with_parent():
        return
    if kernel.is_gvisor():
        reaper.fork_below(control)
        if not _end_with_parent():
            return
    else:
        # Orphaned ops are reaped here instead of by the host's PID 1, which may take its time: until then their control
        # groups cannot be removed. Not under gVisor, whose subreaper also adopts orphans of nested PID namespaces.
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.set_name("sandlot-exec")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        # The server decides when the sandbox ends, so a signal to the process group must not end it. Handled
        # instead of ignored, as Python has the last two: an exec resets that, and each command is spared two calls.
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    _keep_descriptors()
    gc.collect()
    gc.freeze()
    executor = Executor(control)
    try:
        executor.serve()
    except Exception as error:
        # No traceback: printing one opens source files, and these paths now lead into the sandbox.
        os.write(2, f"sandlot: the executor failed: {error!r}\n".encode())
    finally:
        executor.end()
