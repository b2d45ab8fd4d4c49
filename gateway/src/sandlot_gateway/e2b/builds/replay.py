"""Replays the steps of a build in its sandbox, and gathers what they set for the template."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from sandlot_contract.frames import STDERR, STDOUT
from sandlot_contract.verdicts import CommandVerdict

from ..failures import EnvdFailure
from ..saved import Saved
from .archives import Archives, content
from .commands import Commands
from .copying import SCRIPT, USER_SCRIPT
from .expansion import needs_shell, printing
from .logbook import Log
from .steps import Step, copy_of

_TAIL = 1000  # characters of a failed step's output that its error keeps
_LONGEST_LINE = 8192  # bytes
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?\Z")
_ENDED = (CommandVerdict.SANDBOX_ENDED, CommandVerdict.EVICTED)
_KEEP_EVERY = 60.0  # seconds
_SHORT = 60.0  # seconds for a command of the gateway's own


class Failed(Exception):
    """Raised for a build that cannot go on; `step` as BuildRecord has it."""

    def __init__(self, message: str, *, step: str) -> None:
        super().__init__(message)
        self.step = step


class Replay:
    """One build. `saved` begins with what its base sets, and is the template's at the end."""

    def __init__(
        self, commands: Commands, saved: Saved, *, archives: Archives, directory: Path, log: Log, until: float
    ) -> None:
        """`directory`: the tenant's; `until`: when the build must end, on the loop's clock."""
        self._commands = commands
        self._saved = saved
        self._archives = archives
        self._directory = directory
        self._log = log
        self._until = until
        self._kept_at = asyncio.get_running_loop().time()
        self._base = "/"  # the image's working directory
        self._home: str | None = None  # of the user, if that is what HOME says

    async def run(self, steps: list[Step]) -> None:
        """Replay all steps. Raises Failed, EnvdFailure, OSError."""
        if self._saved.workdir is None and any(step.type in ("COPY", "WORKDIR") for step in steps):
            _, told = await self._commands.text("pwd", timeout=_SHORT)
            self._base = told.strip() or "/"
        for number, step in enumerate(steps, 1):
            name = str(number)
            self._log.add(f"[{number}/{len(steps)}] {step.short}", step=name)
            try:
                await self._kinds[step.type](self, step, name)
            except EnvdFailure as failure:
                raise Failed(f"{step.short}: {failure}", step=name) from failure
            await self._keep_archives(steps[number:])

    async def _keep_archives(self, steps: list[Step]) -> None:
        """Let the archives of a long build stay until their turn."""
        now = asyncio.get_running_loop().time()
        if now < self._kept_at + _KEEP_EVERY:
            return
        self._kept_at = now
        for step in steps:
            if step.files_hash is not None:
                await asyncio.to_thread(self._archives.present, self._directory, step.files_hash)

    async def _run(self, step: Step, name: str) -> None:
        user = (await self._expanded(step.words[1], name)) if len(step.words) > 1 else ""
        await self._succeeds(step.words[0], step, name, user=user or self._saved.user, timeout=self._left())

    async def _env(self, step: Step, name: str) -> None:
        added: dict[str, str] = {}
        for key, value in zip(step.words[::2], step.words[1::2], strict=True):
            added[key] = await self._expanded(value, name)
        self._saved.env = {**self._saved.env, **added}

    async def _workdir(self, step: Step, name: str) -> None:
        path = self._path(await self._expanded(step.words[0], name))
        await self._commands.make_directory(path, owner=self._saved.user)
        self._saved.workdir = path

    async def _user(self, step: Step, name: str) -> None:
        user = await self._expanded(step.words[0], name)
        if not _USER.match(user):
            raise Failed(
                f"{step.short}: {user[:100]!r} must be a name or number, or two with a colon", step=name
            )
        self._saved.user = user
        only = user.partition(":")[0]
        if only.isdigit():
            return
        words = ["/bin/sh", "-c", USER_SCRIPT, "sh", only]
        op, home = await self._commands.text(words, timeout=_SHORT, cwd="/", user="root")
        if op.get("exit_code") != 0:
            raise Failed(f"{step.short}: the user {only!r} cannot be made: {_why(op)}", step=name)
        if self._saved.env.get("HOME") in (None, self._home):  # else an ENV has set it
            self._saved.env = {**self._saved.env, "HOME": home}
            self._home = home

    async def _copy(self, step: Step, name: str) -> None:
        wanted = copy_of(step)
        assert step.files_hash is not None
        file = await self._archives.open(self._directory, step.files_hash)
        if file is None:
            raise Failed(f"{step.short}: its files are no longer here: build the template again", step=name)
        there = f"/.sandlot-build-{step.files_hash[:16]}"
        try:
            await self._commands.write(f"{there}.tar", content(file))
        finally:
            file.close()
        target = await self._expanded(wanted.target, name)
        into = "/" if target.endswith(("/", "/.")) or target == "." else ""
        path = self._path(target).rstrip("/") + into
        owner = wanted.owner or self._saved.user or ""
        words = [f"{there}.tar", there, wanted.source, path or "/", owner, wanted.mode or ""]
        await self._succeeds(["/bin/sh", "-c", SCRIPT, "sh", *words], step, name, timeout=self._left())

    _kinds: ClassVar[dict[str, Callable[[Replay, Step, str], Awaitable[None]]]] = {
        "RUN": _run,
        "ENV": _env,
        "WORKDIR": _workdir,
        "USER": _user,
        "COPY": _copy,
    }

    async def _succeeds(
        self,
        command: str | list[str],
        step: Step,
        name: str,
        *,
        user: str | None = None,
        timeout: float = _SHORT,
    ) -> None:
        """Run a command of a step, with its output in the log; one of the gateway's own runs as root."""
        own = isinstance(command, list)
        output = _Output(self._log, name)
        op = await self._commands.run(
            command,
            timeout=timeout,
            env=self._saved.env,
            cwd="/" if own else self._saved.workdir,
            user="root" if own else user,
            output=output,
        )
        output.end()
        if op.get("verdict") != CommandVerdict.EXITED or op.get("exit_code") != 0:
            # The sidecar's own last line says what the verdict says.
            tail = "\n".join(line for line in output.tail.splitlines() if not line.startswith("sandlot: "))
            raise Failed(f"{step.short}: {_why(op)}: {tail}".rstrip(": \n"), step=name)

    async def _expanded(self, value: str, name: str) -> str:
        """Return a value with the variables that it names."""
        if not needs_shell(value):
            return value
        op, text = await self._commands.text(printing(value), timeout=_SHORT, env=self._saved.env)
        if op.get("exit_code") != 0:
            raise Failed(f"the variables in {value[:200]!r} cannot be replaced: {_why(op)}", step=name)
        return text

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join("/", self._saved.workdir or self._base, path))

    def _left(self) -> float:
        return max(1.0, self._until - asyncio.get_running_loop().time())


class _Output:
    """Splits a command's output into lines of the log."""

    def __init__(self, log: Log, step: str) -> None:
        self._log = log
        self._step = step
        self._open = {STDOUT: b"", STDERR: b""}
        self.tail = ""

    def __call__(self, kind: int, data: bytes) -> None:
        *lines, rest = (self._open[kind] + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines.append(rest)
            rest = b""
        self._open[kind] = rest
        for line in lines:
            self._add(kind, line)

    def end(self) -> None:
        for kind, rest in self._open.items():
            if rest:
                self._add(kind, rest)

    def _add(self, kind: int, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.tail = f"{self.tail}{text}\n"[-_TAIL:]
        self._log.add(text, step=self._step, level="info" if kind == STDOUT else "warn")


def _why(op: dict[str, Any]) -> str:
    if op.get("verdict") in _ENDED:
        return f"the build's sandbox has ended: {op.get('message') or op.get('verdict')}"
    if op.get("verdict") == CommandVerdict.EXITED:
        return f"exit code {op.get('exit_code')}"
    return str(op.get("message") or op.get("verdict"))
