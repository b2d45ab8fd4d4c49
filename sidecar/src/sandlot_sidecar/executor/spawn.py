"""Starts the command of an op: shell or argv, user, working directory, environment, terminal."""

from __future__ import annotations

import errno
import os
import stat
from fcntl import ioctl

from . import fork_exec, syscalls, users
from .errors import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The kernel limits one argument to 128 KiB; a longer script is passed as a memfd.
MAX_SCRIPT = 100 * 1024
_TIOCSWINSZ = 0x5414
_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441


_SHELL_PATHS = {
    "bash": ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"),
    "sh": ("/bin/sh", "/usr/bin/sh"),
}


def find_shell(which: str | None) -> str:
    """Return the path of `sh` or `bash`; for None bash, or sh if the image lacks bash. Raises ExecutorError."""
    for name in (which,) if which else ("bash", "sh"):
        for path in _SHELL_PATHS[name]:
            if _is_program(path):
                return path
    message = f"the sandbox has no {which or 'bash and no sh'}: choose another shell, or pass an argv"
    raise ExecutorError("start_failed", message, field="shell")


def shells() -> dict[str, str]:
    """Return the paths of `sh` and `bash`, "" for one that the image lacks: it can still run an argv."""
    return {name: path_of_shell(name) for name in _SHELL_PATHS}


def path_of_shell(which: str) -> str:
    """Return the path of `sh` or `bash`, "" if the image lacks it."""
    return next((path for path in _SHELL_PATHS[which] if _is_program(path)), "")


def _is_program(path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and bool(info.st_mode & 0o111)


class StartFailed(Exception):
    """The command could not be started; `answer` is the reply to the server."""

    def __init__(
        self, code: str, message: str, *, exit_code: int | None = None, field: str | None = None
    ) -> None:
        super().__init__(message)
        self.answer: dict[str, Any] = {"failed": code, "message": message, "exit_code": exit_code}
        if field is not None:
            self.answer["field"] = field


class Terminal:
    """A pseudo terminal on the sandbox's own devpts."""

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
        """Close the slave, which the child has inherited."""
        os.close(self.slave)


class Spawner:
    """Starts commands for a runner."""

    def __init__(self, *, devpts: int, rootless: bool, mark: bool) -> None:
        self._devpts = devpts
        self._rootless = rootless
        self._mark = mark
        self._groups: set[int] | None = None  # the runner's own
        self._shells: dict[str | None, str] = {}  # shell -> its path; a look-up costs 30 µs under gVisor

    def root_exchanged(self) -> None:
        """Forget the earlier root and the keys of its commands; open the terminals of the new one, a claimed image."""
        syscalls.new_session_keyring()
        self._shells.clear()
        users.set_default(None)
        devpts = os.open("/dev/pts", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.dup2(devpts, self._devpts, inheritable=False)
        os.close(devpts)

    def start(self, run: dict[str, Any], fds: list[int]) -> tuple[int, int | None]:
        """Start a command; return its pid and its terminal's master, if any. Raises StartFailed."""
        try:
            user = users.resolve(run.get("user"))
        except ExecutorError as error:
            raise StartFailed("start_failed", error.message, field=error.field) from error
        except Exception as error:
            # User code controls the files read here; an unhandled error would end the runner.
            message = f"cannot look up the user in the sandbox's /etc/passwd: {type(error).__name__}"
            raise StartFailed("start_failed", message, field="user") from error
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
                raise StartFailed(
                    "start_failed",
                    "an op without a terminal needs three descriptors: stdin, stdout and stderr",
                )
            argv, script = self._argv(run)
            if "shell" in run:
                # Without SHELL, bash reads /etc/passwd, which user code may have replaced with a pipe.
                env.setdefault("SHELL", argv[0])
            other = self._user_to_switch_to(user)
            in_terminal = terminal is not None
            try:
                pid = fork_exec.start(argv, env=env, cwd=cwd, fds=fds, user=other, terminal=in_terminal)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                if self._shells.pop(run.get("shell_kind"), None) != argv[0]:
                    raise
                argv[0] = self._shell(run)  # user code may have removed this shell; another may exist
                pid = fork_exec.start(argv, env=env, cwd=cwd, fds=fds, user=other, terminal=in_terminal)
        except BaseException as error:
            if terminal is not None:
                os.close(terminal.master)
            if isinstance(error, ExecutorError):
                raise StartFailed("start_failed", error.message, field=error.field) from error
            if isinstance(error, OSError):
                raise _failed(error, what=argv[0], cwd=cwd) from error
            if isinstance(error, ValueError):
                raise StartFailed("start_failed", f"cannot pass the command to exec: {error}") from error
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
                raise StartFailed("start_failed", "the command is empty", field="command")
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
        if which is not None and which not in _SHELL_PATHS:
            return which  # a path
        path = self._shells.get(which)
        # While sh is only the fallback, look each time: user code may have installed bash.
        if path is None or (which is None and path not in _SHELL_PATHS["bash"]):
            path = self._shells[which] = find_shell(which)
        return path

    def _user_to_switch_to(self, user: users.User) -> users.User | None:
        """Return the user, or None for root, which the runner already is; raises ExecutorError."""
        if user.uid == 0 and user.gid == 0 and (self._rootless or self._has(user.groups)):
            return None
        if self._rootless:
            message = (
                f"cannot run as uid {user.uid}: this rootless sandbox has only uid 0; run the op as root"
            )
            raise ExecutorError("start_failed", message, field="user")
        return user

    def _has(self, groups: list[int]) -> bool:
        """Return whether the runner, which is root, has these groups: then a command starts by vfork."""
        if self._groups is None:
            self._groups = {0, *os.getgroups()}
        return self._groups == {0, *groups}


def _failed(error: OSError, *, what: str, cwd: str) -> StartFailed:
    number = error.errno
    if error.filename == cwd and cwd != what:
        reason = "is not a directory" if number == errno.ENOTDIR else os.strerror(number or 0).lower()
        return StartFailed("start_failed", f"working directory {cwd}: {reason}", field="cwd")
    if number == errno.ENOENT:
        return StartFailed("not_found", f"{what}: command not found", exit_code=127)
    if number in (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR, errno.EPERM, errno.ELOOP):
        reason = {errno.EACCES: "permission denied", errno.ENOEXEC: "exec format error"}
        message = reason.get(number, os.strerror(number).lower())
        return StartFailed("not_executable", f"{what}: {message}", exit_code=126)
    if number == errno.E2BIG:
        return StartFailed("not_executable", f"{what}: argument list too long", exit_code=126)
    if number == errno.EAGAIN:
        return StartFailed(
            "pids_limit", "cannot start a process: the sandbox's limit of processes is reached"
        )
    if number == errno.ENOMEM:
        return StartFailed("oom", "cannot start a process: the sandbox is out of memory")
    return StartFailed("start_failed", f"{what}: {error.strerror or error}")
