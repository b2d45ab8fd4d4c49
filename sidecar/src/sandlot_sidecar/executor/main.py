"""The executor's loop: one thread, one poll, requests from the server, deaths of its children."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket

from .. import kernel
from . import files, syscalls, wire
from .errors import ExecutorError, from_os
from .jobs import Jobs
from .replies import Replies, unexpected
from .setup import set_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .replies import Answer
    from .sandbox import Sandbox

CONNECT_TIMEOUT = 10.0


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
        """The one that was set up; raises ExecutorError while there is none."""
        if self._sandbox is None:
            raise ExecutorError("conflict", "the sandbox is not set up")
        return self._sandbox

    def serve(self) -> None:
        """Serve until `end` or until the server is gone."""
        while not self._ended:
            sandbox = self._sandbox
            poll = select.poll()
            for fd in (
                self.control.fileno(),
                *self._jobs.descriptors(),
                *(sandbox.descriptors() if sandbox else ()),
            ):
                poll.register(fd, select.POLLIN)
            ready = [fd for fd, _ in poll.poll(sandbox.patience() if sandbox else None)]
            if sandbox is not None and self._look_after(sandbox, ready):
                continue
            for fd in ready:
                if sandbox is not None and fd in sandbox.runners.children:
                    sandbox.runners.ended(fd)
                elif fd in self._jobs.descriptors():
                    self._jobs.done(fd)
            if self.control.fileno() in ready and not self._requests():
                return

    def _look_after(self, sandbox: Sandbox, ready: list[int]) -> bool:
        """What has happened to the sandbox itself; whether all its children are new ones since."""
        sandbox.look()
        if sandbox.doorbell in ready:
            sandbox.runners.too_much_memory()
        if sandbox.target_fd in ready:
            self._replies.send(sandbox.target_lost())
        if sandbox.init_fd in ready:
            self._replies.send(sandbox.init_lost())
            return True
        return False

    def end(self) -> None:
        """Take down the sandbox, where there is one; a second time does nothing."""
        if self._sandbox is not None:
            self._sandbox.end()
            self._sandbox = None

    def _requests(self) -> bool:
        messages = self._decoder.receive(self.control)
        if messages is None:
            return False
        for message, fds in messages:
            wire.close_all(fds)
            self._request(message)
        return True

    def _request(self, message: dict[str, Any]) -> None:
        seq = message.get("seq")
        try:
            if message.get("do") in ("file", "connect"):
                self.sandbox.check_running()
            if message.get("do") == "file" and files.is_long(message):
                self._jobs.start(seq, lambda: files.run(message))
                return
            if message.get("do") == "kill":
                runners, runner = self.sandbox.runners, int(message["runner"])
                self._jobs.start(seq, lambda: ({"killed": runners.kill(runner)}, []))
                return
            if message.get("do") == "lost":
                runners, runner = self.sandbox.runners, int(message["runner"])
                facts = runners.lost(runner)
                self._jobs.start(seq, lambda: ({"facts": facts, "killed": runners.kill(runner)}, []))
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
                self._jobs.start(seq, lambda: ({}, [self._connect(port)]))
                return
            self._replies.answer(seq, self._do(message))
        except ExecutorError as error:
            self._replies.refuse(seq, error)
        except OSError as error:
            self._replies.refuse(seq, from_os(error))
        except (KeyError, TypeError, ValueError) as error:
            self._replies.refuse(seq, ExecutorError("bad_request", f"bad request: {error}"))
        except Exception as error:  # it would end the executor, and the sandbox with it
            self._replies.refuse(seq, unexpected(error))

    def _do(self, message: dict[str, Any]) -> Answer:
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
            return self.sandbox.apply(message), []
        if do == "egress":
            return self.sandbox.egress(message), []
        if do == "usage":
            return self.sandbox.usage(), []
        if do == "full":
            return {"full": self.sandbox.disk().full()}, []
        if do == "alive":
            return {"alive": self.sandbox.alive()}, []
        if do == "layer":
            return {}, [self.sandbox.layer(merged=bool(message.get("merged")))]
        if do == "reset":
            self._jobs.end_all()
            return self.sandbox.reset(message)
        if do == "end":
            self._jobs.end_all()
            self.end()
            self._ended = True
            return {}, []
        raise ExecutorError("bad_request", f"no such request: {do}", field="do")

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


def _port(message: dict[str, Any]) -> int:
    port = message.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ExecutorError("bad_request", "port must be a number from 1 to 65535", field="port")
    return port


def _nothing(number: int, frame: Any) -> None:
    return


def _keep_descriptors() -> None:
    """Let no program of a child have them by inheritance, whatever this process was started with."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError:  # that of the listing itself
            continue


def run(control: socket.socket) -> None:
    """Be the executor until the server hangs up or asks for the end; the caller then leaves with os._exit.

    To be called in a child of the server that has one thread and has read no secret yet. The sandbox and
    everything in it disappear with this process.
    """
    parent = os.getppid()
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    syscalls.set_name("sandlot-exec")
    if not kernel.is_gvisor():
        # Orphaned ops are reaped here, not whenever the machine's own PID 1 comes to it: until then they are in the
        # way. Not under gVisor, where a reaper takes orphans also from the namespaces below it.
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The server decides when the sandbox ends; a signal to the whole group must not be faster. Not ignored,
        # but handled: what is ignored stays so in every command.
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
        # Not a traceback: printing one opens source files, and those paths are the sandbox's by now.
        os.write(2, f"sandlot: the executor failed: {error!r}\n".encode())
    finally:
        executor.end()
