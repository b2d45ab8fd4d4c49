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
from .sandbox import Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Answer = tuple[dict[str, Any], list[int]]

CONNECT_TIMEOUT = 10.0


class Executor:
    """Serves one control socket."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.sandbox = Sandbox()
        self._decoder = wire.Decoder()
        self._jobs: dict[int, tuple[int, int, socket.socket]] = {}
        self._ended = False

    def serve(self) -> None:
        """Serve until `end` or until the server is gone."""
        while not self._ended:
            poll = select.poll()
            poll.register(self.control, select.POLLIN)
            for fd in (*self._jobs, *self.sandbox.children):
                poll.register(fd, select.POLLIN)
            init_fd = self.sandbox.init.fd if self.sandbox.running else -1
            if init_fd >= 0:
                poll.register(init_fd, select.POLLIN)
            target_fd = self.sandbox.target_fd
            if target_fd >= 0:
                poll.register(target_fd, select.POLLIN)
            doorbell = self.sandbox.doorbell
            if doorbell >= 0:
                poll.register(doorbell, select.POLLIN)
            ready = [fd for fd, _ in poll.poll(self.sandbox.patience())]
            self.sandbox.look()
            if doorbell in ready:
                self.sandbox.too_much_memory()
            if target_fd in ready:
                self._event(self.sandbox.target_lost())
            if init_fd in ready:
                self._event(self.sandbox.init_lost())
                continue
            for fd in ready:
                if fd in self.sandbox.children:
                    self.sandbox.child_ended(fd)
                elif fd in self._jobs:
                    self._job_done(fd)
            if self.control.fileno() in ready and not self._requests():
                return

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
                self._job(seq, lambda: files.run(message))
                return
            if message.get("do") == "kill":
                runner = int(message["runner"])
                self._job(seq, lambda: ({"killed": self.sandbox.kill(runner)}, []))
                return
            if message.get("do") == "lost":
                runner = int(message["runner"])
                facts = self.sandbox.lost(runner)
                self._job(seq, lambda: ({"facts": facts, "killed": self.sandbox.kill(runner)}, []))
                return
            if message.get("do") == "disk":
                at_once = self.sandbox.quick_disk(message)
                if at_once is None:
                    self._job(seq, lambda: (self.sandbox.disk(), []))
                else:
                    self._answer(seq, (at_once, []))
                return
            if message.get("do") == "connect":
                port = _port(message)
                self._job(seq, lambda: ({}, [self._connect(port)]))
                return
            self._answer(seq, self._do(message))
        except ExecutorError as error:
            self._refuse(seq, error)
        except OSError as error:
            self._refuse(seq, from_os(error))
        except (KeyError, TypeError, ValueError) as error:
            self._refuse(seq, ExecutorError("bad_request", f"bad request: {error}"))
        except Exception as error:  # it would end the executor, and the sandbox with it
            self._refuse(seq, _unexpected(error))

    def _do(self, message: dict[str, Any]) -> Answer:
        do = message.get("do")
        sandbox = self.sandbox
        if do == "runner":
            pid, channel = sandbox.runner()
            return {"runner": pid}, [channel.detach()]
        if do == "file":
            return files.run(message)
        if do == "setup":
            document = sandbox.setup(message)
            return document, sandbox.counters()
        if do == "apply":
            return sandbox.apply(message), []
        if do == "egress":
            return sandbox.egress(message), []
        if do == "usage":
            return sandbox.usage(), []
        if do == "full":
            return {"full": sandbox.full()}, []
        if do == "alive":
            return {"alive": sandbox.alive()}, []
        if do == "layer":
            return {}, [sandbox.layer(merged=bool(message.get("merged")))]
        if do == "reset":
            self._drop_jobs()
            return sandbox.reset(message), []
        if do == "end":
            self._drop_jobs()
            sandbox.end()
            self._ended = True
            return {}, []
        raise ExecutorError("bad_request", f"no such request: {do}", field="do")

    def _answer(self, seq: Any, answer: Answer) -> None:
        document, fds = answer
        try:
            wire.send(self.control, {"seq": seq, "ok": True, **document}, fds)
        except OSError:
            # The server is gone: the next read says so.
            return
        finally:
            wire.close_all(fds)

    def _refuse(self, seq: Any, error: ExecutorError) -> None:
        self._answer_raw(_refusal(seq, error))

    def _answer_raw(self, message: dict[str, Any]) -> None:
        try:
            wire.send(self.control, message)
        except OSError:
            return

    def _event(self, message: dict[str, Any]) -> None:
        self._answer_raw(message)

    def _job(self, seq: Any, work: Callable[[], Answer]) -> None:
        """Do what may take long in a child, and answer when it is done."""
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _child(work, seq=seq, channel=theirs, parent=parent)
        theirs.close()
        self._jobs[ours.fileno()] = (pid, seq, ours)

    def _job_done(self, fd: int) -> None:
        pid, seq, channel = self._jobs.pop(fd)
        try:
            messages = wire.Decoder().receive(channel)
        except (OSError, wire.WireError):
            messages = None
        channel.close()
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # it was reaped with the sandbox's own
        if not messages:
            self._refuse(seq, ExecutorError("internal", "the operation was ended"))
            return
        message, fds = messages[0]
        try:
            wire.send(self.control, message, fds)
        except OSError:
            return
        finally:
            wire.close_all(fds)

    def _drop_jobs(self) -> None:
        for fd in list(self._jobs):
            os.kill(self._jobs[fd][0], signal.SIGKILL)
            self._job_done(fd)

    def _connect(self, port: int) -> int:
        sandbox = self.sandbox
        assert sandbox.home is not None
        if sandbox.init.net_id != os.stat(sandbox.home.net).st_ino:
            syscalls.setns(sandbox.init.namespaces["net"], syscalls.CLONE_NEWNET)
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
        raise ExecutorError("refused", f"nothing listens on port {port} in the sandbox") from refused


def _port(message: dict[str, Any]) -> int:
    port = message.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ExecutorError("bad_request", "port must be a number from 1 to 65535", field="port")
    return port


def _unexpected(error: Exception) -> ExecutorError:
    return ExecutorError("internal", f"an unexpected failure: {type(error).__name__}")


def _refusal(seq: Any, error: ExecutorError) -> dict[str, Any]:
    message = {"seq": seq, "error": error.code, "message": error.message}
    if error.field is not None:
        message["field"] = error.field
    return message


def _child(work: Callable[[], Answer], *, seq: Any, channel: socket.socket, parent: int) -> None:
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        try:
            document, fds = work()
            wire.send(channel, {"seq": seq, "ok": True, **document}, fds)
        except ExecutorError as error:
            wire.send(channel, _refusal(seq, error))
        except OSError as error:
            wire.send(channel, _refusal(seq, from_os(error)))
        except Exception as error:
            wire.send(channel, _refusal(seq, _unexpected(error)))
    finally:
        os._exit(0)


def _nothing(number: int, frame: Any) -> None:
    return


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
    gc.collect()
    gc.freeze()
    executor = Executor(control)
    try:
        executor.serve()
    except Exception as error:
        # Not a traceback: printing one opens source files, and those paths are the sandbox's by now.
        os.write(2, f"sandlot: the executor failed: {error!r}\n".encode())
    finally:
        executor.sandbox.end()
