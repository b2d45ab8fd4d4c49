"""Commands in a sandbox: run one, stream its output, start it in the background and attach later, run many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, overload

from sandlot._async.handle import AsyncHandle
from sandlot._async.process import AsyncProcess
from sandlot._async.stream import AsyncOpStream
from sandlot._protocol import calls, checks, documents, tracing
from sandlot._protocol.answers import end_error
from sandlot._protocol.checks import Command
from sandlot._protocol.messages import json_body
from sandlot._tasks_async import ABANDONED, each, now, shielded
from sandlot.errors import CommandFailed
from sandlot.models import ExecResult, Progress

EXEC_SLACK = 300.0  # seconds after a command's own limit for queueing, lost connections and restarts


class AsyncCommands(AsyncHandle):
    """Runs commands in a sandbox; a base class of `AsyncSandbox`."""

    @overload
    async def exec(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        shell: str | None = None,
        stdin: str | bytes | None = None,
        op_id: str | None = None,
        stream: Literal[False] = False,
        check: bool = False,
    ) -> ExecResult: ...

    @overload
    async def exec(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        shell: str | None = None,
        stdin: str | bytes | None = None,
        op_id: str | None = None,
        stream: Literal[True],
        check: bool = False,
    ) -> AsyncOpStream: ...

    async def exec(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        shell: str | None = None,
        stdin: str | bytes | None = None,
        op_id: str | None = None,
        stream: bool = False,
        check: bool = False,
    ) -> ExecResult | AsyncOpStream:
        """Run a command (a string for the shell, or a list of arguments) and wait for its result.

        A string runs in the image's bash, or in sh if it has no bash; `shell` selects another: `sh`, `bash` or
        an absolute path, called with `-c`. A list runs without a shell.
        A command that runs longer than `timeout` seconds is killed; its result has the verdict `timeout` and the
        output so far. `stream=True` returns an iterator of events instead. The request carries an op id (yours or
        a new one), so a retry after a lost connection runs the command only once. Cancelling ends the command.
        Raises SandboxLost when the infrastructure ended it, StartFailed when it could not start and, with `check`,
        CommandFailed when it did not exit with code 0.
        """
        op = calls.op_id_or_new(op_id)
        if stream:
            return await self._exec_stream(
                command,
                op=op,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                shell=shell,
                stdin=stdin,
                check=check,
            )
        text = calls.inline_stdin(stdin)
        if stdin is not None and text is None:
            process = await self._start(
                command, op=op, timeout=timeout, env=env, cwd=cwd, user=user, shell=shell, stdin=True
            )
            async with process:
                await process.feed(stdin)
                return await process.wait(check=check)
        document = calls.exec_document(
            command=command, cwd=cwd, env=env, timeout=timeout, user=user, shell=shell, stdin=text
        )
        try:
            with tracing.span("sandlot.exec", sandbox_id=self._plane.sandbox_id, op_id=op):
                response = await self._plane.send(
                    "POST",
                    "/exec",
                    body=json_body(document),
                    headers={"X-Sandlot-Op": op},
                    timeout=None if timeout is None else timeout + EXEC_SLACK,
                    deadline=None if timeout is None else now() + timeout + EXEC_SLACK,
                    accept=(408,),
                )
        except ABANDONED:
            await shielded(lambda: self._plane.kill(op))
            raise
        result = documents.exec_result(documents.parse(response.body), op_id=op)
        error = end_error(result, sandbox_id=self._plane.sandbox_id)
        if error is not None:
            raise error
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    async def start(
        self,
        command: Command,
        *,
        pty: bool | tuple[int, int] = False,
        stdin: bool = True,
        detach: bool = False,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        shell: str | None = None,
        op_id: str | None = None,
    ) -> AsyncProcess:
        """Start a command and return while it runs.

        `pty` gives it a terminal, of 80 × 24 or the given (columns, rows). With `detach` it keeps running without a
        client; otherwise the server ends it soon after its caller disconnects.
        """
        return await self._start(
            command,
            op=calls.op_id_or_new(op_id),
            timeout=timeout,
            env=env,
            cwd=cwd,
            user=user,
            shell=shell,
            stdin=stdin,
            pty=checks.size_of_terminal(pty),
            detach=detach,
        )

    async def attach(self, op_id: str, *, offset: int = 0) -> AsyncProcess:
        """Attach to a command started earlier, here or elsewhere, from `offset` on. Raises NotFound, OpExpired."""
        document = await self._plane.call("GET", f"/ops/{calls.op_id_or_new(op_id)}")
        detached = bool(document.get("detached"))
        stream = AsyncOpStream(plane=self._plane, op_id=op_id, document=None, offset=offset, keep=detached)
        await stream.open()
        return AsyncProcess(plane=self._plane, stream=stream, detached=detached, written=None)

    async def map_execs(
        self,
        commands: Iterable[Command],
        *,
        concurrency: int = 64,
        progress: Callable[[Progress], None] | None = None,
        return_exceptions: bool = False,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
    ) -> list[Any]:
        """Run commands in this sandbox, at most `concurrency` at once; return results in the order of the commands."""

        async def one(command: Command) -> ExecResult:
            return await self.exec(command, timeout=timeout, env=env, cwd=cwd, user=user)

        return await each(
            one, commands, concurrency=concurrency, return_exceptions=return_exceptions, progress=progress
        )

    async def _exec_stream(
        self,
        command: Command,
        *,
        op: str,
        timeout: float | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        user: str | int | None,
        shell: str | None,
        stdin: str | bytes | None,
        check: bool,
    ) -> AsyncOpStream:
        stream = self._stream(
            command,
            op=op,
            timeout=timeout,
            env=env,
            cwd=cwd,
            user=user,
            shell=shell,
            stdin=stdin is not None,
            check=check,
        )
        await stream.open()
        if stdin is not None:
            try:
                await AsyncProcess(plane=self._plane, stream=stream, detached=False).feed(stdin)
            except BaseException:
                await stream.aclose()  # the caller never receives it
                raise
        return stream

    async def _start(
        self,
        command: Command,
        *,
        op: str,
        timeout: float | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        user: str | int | None,
        shell: str | None,
        stdin: bool,
        pty: tuple[int, int] | None = None,
        detach: bool = False,
    ) -> AsyncProcess:
        stream = self._stream(
            command,
            op=op,
            timeout=timeout,
            env=env,
            cwd=cwd,
            user=user,
            shell=shell,
            stdin=stdin,
            pty=pty,
            detach=detach,
        )
        await stream.open()
        return AsyncProcess(plane=self._plane, stream=stream, detached=detach)

    def _stream(
        self,
        command: Command,
        *,
        op: str,
        timeout: float | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        user: str | int | None,
        shell: str | None,
        stdin: bool,
        pty: tuple[int, int] | None = None,
        detach: bool = False,
        check: bool = False,
    ) -> AsyncOpStream:
        document = calls.op_document(
            op_id=op,
            command=command,
            cwd=cwd,
            env=env,
            timeout=timeout,
            user=user,
            shell=shell,
            stdin=stdin,
            pty=pty,
            detach=detach,
        )
        return AsyncOpStream(plane=self._plane, op_id=op, document=document, check=check, keep=detach)
