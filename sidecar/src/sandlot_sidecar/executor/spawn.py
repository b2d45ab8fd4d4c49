"""Starts one command of an op: shell or argv, user, directory, environment, terminal."""

from __future__ import annotations

import errno
import os
import stat
from fcntl import ioctl

from . import birth, users
from .errors import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# One argument may have 128 KiB; a longer script is handed over as a file.
MAX_SCRIPT = 100 * 1024
_TIOCSCTTY = 0x540E
_TIOCSWINSZ = 0x5414
_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441


_PLACES = {"bash": ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"), "sh": ("/bin/sh", "/usr/bin/sh")}


def find_shell(which: str | None) -> str:
    """The path of the shell `sh` or `bash`; for None bash, and sh in an image without it. Raises ExecutorError."""
    for name in (which,) if which else ("bash", "sh"):
        for path in _PLACES[name]:
            if _is_program(path):
                return path
    message = f"the sandbox has no {which or 'bash and no sh'}: choose another shell, or pass an argv"
    raise ExecutorError("start_failed", message, field="shell")


def _is_program(path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and bool(info.st_mode & 0o111)


class Failed(Exception):
    """The command could not be started; `answer` is what the server is told."""

    def __init__(
        self, code: str, message: str, *, exit_code: int | None = None, field: str | None = None
    ) -> None:
        super().__init__(message)
        self.answer: dict[str, Any] = {"failed": code, "message": message, "exit_code": exit_code}
        if field is not None:
            self.answer["field"] = field


class Terminal:
    """A pseudo terminal of the sandbox's own devpts."""

    def __init__(self, *, devpts: int, size: dict[str, Any], user: users.User) -> None:
        self.master = os.open("ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=devpts)
        try:
            ioctl(self.master, _TIOCSPTLCK, b"\0\0\0\0")
            self.slave: int = ioctl(self.master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            rows, cols = int(size.get("rows") or 24), int(size.get("cols") or 80)
            window = b"".join((n & 0xFFFF).to_bytes(2, "little") for n in (rows, cols, 0, 0))
            ioctl(self.master, _TIOCSWINSZ, window)
            if user.uid != 0:
                os.fchown(self.slave, user.uid, -1)
        except OSError:
            os.close(self.master)
            raise

    def close_slave(self) -> None:
        """The child has its own by now."""
        os.close(self.slave)


class Spawner:
    """Starts commands for a runner."""

    def __init__(self, *, devpts: int, rootless: bool, mark: bool) -> None:
        self._devpts = devpts
        self._rootless = rootless
        self._mark = mark
        self._shells: dict[str | None, str] = {}  # where they were found; a look costs 30 µs under gVisor

    def start(self, run: dict[str, Any], fds: list[int]) -> tuple[int, int | None]:
        """Start it; returns its pid and a terminal's master. Raises Failed."""
        try:
            user = users.resolve(run.get("user"))
        except ExecutorError as error:
            raise Failed("start_failed", error.message, field=error.field) from error
        except Exception as error:
            # The files it reads are user code's, and a runner that ends would be a broken sandbox.
            message = f"the user cannot be looked up: {type(error).__name__}"
            raise Failed("start_failed", message, field="user") from error
        env = {str(key): str(value) for key, value in (run.get("env") or {}).items()}
        env.setdefault("PATH", DEFAULT_PATH)
        env.setdefault("HOME", user.home)
        if self._mark:
            env["SANDLOT_OP"] = str(run.get("mark", ""))
        cwd = run.get("cwd") or "/"
        terminal = None
        script = -1
        argv = [""]
        try:
            if run.get("pty"):
                env.setdefault("TERM", "xterm-256color")
                terminal = Terminal(devpts=self._devpts, size=run["pty"], user=user)
                fds = [terminal.slave] * 3
            elif len(fds) != 3:
                raise Failed("start_failed", "three descriptors are needed")
            argv, script = self._argv(run)
            if "shell" in run:
                # Without it bash looks its user up in /etc/passwd, which the sandbox may have made a pipe.
                env.setdefault("SHELL", argv[0])
            other = self._other(user)
            before_exec = _take_terminal if terminal is not None else None
            try:
                pid = birth.start(argv, env=env, cwd=cwd, fds=fds, user=other, before_exec=before_exec)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                if self._shells.pop(run.get("shell_kind"), None) != argv[0]:
                    raise
                argv[0] = self._shell(run)  # the sandbox may have taken it away, and have another
                pid = birth.start(argv, env=env, cwd=cwd, fds=fds, user=other, before_exec=before_exec)
        except BaseException as error:
            if terminal is not None:
                os.close(terminal.master)
            if isinstance(error, ExecutorError):
                raise Failed("start_failed", error.message, field=error.field) from error
            if isinstance(error, OSError):
                raise _failed(error, what=argv[0], cwd=cwd) from error
            if isinstance(error, ValueError):
                raise Failed("start_failed", f"the command cannot be passed on: {error}") from error
            raise
        finally:
            if terminal is not None:
                terminal.close_slave()
            if script >= 0:
                os.close(script)
        return pid, terminal.master if terminal is not None else None

    def _argv(self, run: dict[str, Any]) -> tuple[list[str], int]:
        command = run.get("shell")
        if command is None:
            argv = [str(part) for part in run.get("argv") or []]
            if not argv or not argv[0]:
                raise Failed("start_failed", "the command is empty", field="command")
            return argv, -1
        shell = self._shell(run)
        data = os.fsencode(command)
        if len(data) <= MAX_SCRIPT:
            return [shell, "-c", command], -1
        script = os.memfd_create("command", 0)
        view = memoryview(data)
        while view:
            view = view[os.write(script, view) :]
        os.lseek(script, 0, os.SEEK_SET)
        return [shell, f"/dev/fd/{script}"], script

    def _shell(self, run: dict[str, Any]) -> str:
        which = run.get("shell_kind")
        if which is not None and which not in _PLACES:
            return which  # a path
        path = self._shells.get(which)
        # Of sh as the second choice a look is due each time: the sandbox may have installed bash by now.
        if path is None or (which is None and path not in _PLACES["bash"]):
            path = self._shells[which] = find_shell(which)
        return path

    def _other(self, user: users.User) -> users.User | None:
        """The user, if it is another than this process; raises ExecutorError."""
        if user.uid == 0 and user.gid == 0:
            return None
        if self._rootless:
            message = f"only root can be used here (user namespace without further ids), not uid {user.uid}"
            raise ExecutorError("start_failed", message, field="user")
        return user


def _take_terminal() -> None:
    ioctl(0, _TIOCSCTTY, 0)


def _failed(error: OSError, *, what: str, cwd: str) -> Failed:
    number = error.errno
    if error.filename == cwd and cwd != what:
        reason = "is not a directory" if number == errno.ENOTDIR else os.strerror(number or 0).lower()
        return Failed("start_failed", f"working directory {cwd}: {reason}", field="cwd")
    if number == errno.ENOENT:
        return Failed("not_found", f"{what}: command not found", exit_code=127)
    if number in (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR, errno.EPERM, errno.ELOOP):
        reason = {errno.EACCES: "permission denied", errno.ENOEXEC: "exec format error"}
        message = reason.get(number, os.strerror(number).lower())
        return Failed("not_executable", f"{what}: {message}", exit_code=126)
    if number == errno.E2BIG:
        return Failed("not_executable", f"{what}: argument list too long", exit_code=126)
    if number == errno.EAGAIN:
        return Failed("pids_limit", "no process can be started: the limit of processes is reached")
    if number == errno.ENOMEM:
        return Failed("oom", "no process can be started: out of memory")
    return Failed("start_failed", f"{what}: {error.strerror or error}")
