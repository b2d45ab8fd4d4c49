"""One sandbox: create, find and reset it; its base classes delete it, run commands, set its network and so on."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sandlot._async import groups
from sandlot._async.bulk import AsyncBulk
from sandlot._async.checkpoints import AsyncCheckpoints
from sandlot._async.client import CLEANUP, AsyncClient, default_client
from sandlot._async.commands import AsyncCommands
from sandlot._async.composed import AsyncComposed, begin_again
from sandlot._async.contexts import AsyncPythonContexts
from sandlot._async.files import AsyncFiles
from sandlot._async.forks import AsyncForks
from sandlot._async.groups import AsyncGroup
from sandlot._async.lifecycle import AsyncLifecycle, delete_quietly
from sandlot._async.network import AsyncNetwork
from sandlot._protocol import calls, checks, documents, tracing
from sandlot._protocol import groups as group_bodies
from sandlot._protocol.checks import Command
from sandlot._resume import ResultFile, result_keys
from sandlot._tasks_async import ABANDONED, each, now, shielded
from sandlot.builds import Built
from sandlot.errors import SandboxLost, SandlotError
from sandlot.models import CheckpointInfo, Progress, SandboxInfo

Item = TypeVar("Item")
Result = TypeVar("Result")

HOLD_SECONDS = 20.0  # how long one create request lets the server wait for the sandbox


class AsyncSandbox(
    AsyncLifecycle,
    AsyncBulk,
    AsyncCommands,
    AsyncPythonContexts,
    AsyncNetwork,
    AsyncCheckpoints,
    AsyncForks,
    AsyncComposed,
):
    """A sandbox on a server. `async with` deletes it at the end of the block."""

    def __init__(
        self, *, client: AsyncClient, info: SandboxInfo, auth: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(client=client, info=info, auth=auth)
        self.files = AsyncFiles(plane=self._plane)

    # create and find

    @classmethod
    async def create(
        cls,
        image: str | None = None,
        *,
        checkpoint: str | CheckpointInfo | Built | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        secret_refs: Mapping[str, str] | None = None,
        timeout: float | None = 3600.0,
        idle_timeout: float | None = None,
        network: str = "full",
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        pids: int | None = None,
        gpu_count: int | None = None,
        gpu_type: str | None = None,
        labels: Sequence[str] = (),
        run: str | None = None,
        run_id: str | None = None,
        name: str | None = None,
        pool: str | None = None,
        start_command: Command | None = None,
        run_image_command: bool = False,
        stop_signal: str | int | None = None,
        stop_grace: float | None = None,
        workdir: str | None = None,
        user: str | int | None = None,
        idempotency_key: str | None = None,
        wait: float = 300.0,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """Create a sandbox from an image (default "host") or a checkpoint and wait until it can run commands.

        `timeout` and `idle_timeout` are seconds (None: no limit), `memory` and `disk` bytes or strings such as
        `"1GiB"`, `cpu` cores, `network` "full" or "none". `gpu_type` (default: any) is one such as "H100". `wait` is how
        many seconds to wait until it is ready; 0 returns at once. `allow` or `deny` is its egress policy, see
        `set_network`. `run_image_command` starts the image's ENTRYPOINT and CMD in place of a `start_command`; at its
        end, that process gets `stop_signal` (default the image's, else SIGTERM) and `stop_grace` seconds. `run` names the
        training run that it is of (default SANDLOT_RUN, "" for none): creates that wait take turns between the runs of
        an API key's tenant. `run_id` names a run whose end ends the sandbox (see `Run`; default SANDLOT_RUN_ID, "" for none).
        `secret_refs` are variables whose values the server reads from secrets that its operator keeps,
        as `{"TOKEN": "SECRET/KEY"}`. Raises BadRequest, Busy, SandboxLost (the sandbox could not start) or WaitTimeout.
        """
        client = client or await default_client()
        body = calls.create_document(
            image=image,
            checkpoint=checkpoint,
            name=name,
            env=env,
            secrets=secrets,
            secret_refs=secret_refs,
            timeout=timeout,
            idle_timeout=idle_timeout,
            network=network,
            allow=allow,
            deny=deny,
            cpu=cpu,
            memory=memory,
            disk=disk,
            pids=pids,
            gpu_count=gpu_count,
            gpu_type=gpu_type,
            labels=labels,
            run=run,
            run_id=run_id,
            pool=pool,
            start_command=start_command,
            run_image_command=run_image_command,
            stop_signal=stop_signal,
            stop_grace=stop_grace,
            workdir=workdir,
            user=user,
            idempotency_key=idempotency_key or calls.new_id(),
            wait_seconds=max(0.0, min(wait, HOLD_SECONDS)),
        )
        deadline = now() + wait
        with tracing.span("sandlot.create"):
            try:
                document = await client.call("POST", "/sandbox", body=body, timeout=HOLD_SECONDS + 30)
            except ABANDONED:
                if idempotency_key is None:  # else another caller may have made it and use it
                    await shielded(lambda: _forget(client, body))
                raise
            box = cls(client=client, info=documents.sandbox_info(document), auth=document.get("gatewayAuth"))
            if wait > 0:
                try:
                    await box.wait_ready(timeout=max(0.0, deadline - now()))
                except (*ABANDONED, SandlotError):
                    if idempotency_key is None:
                        await shielded(lambda: delete_quietly(client, box.id))
                    raise
        return box

    @classmethod
    async def create_group(
        cls,
        of: int | Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        wait: float = 300.0,
        client: AsyncClient | None = None,
        **create: Any,
    ) -> AsyncGroup[AsyncSandbox]:
        """Create `of` sandboxes, all or none, and wait until all run. Other arguments as in `create`.

        `of` may be several kinds, each a mapping with arguments of its own and a `count` (default 1). One with a
        `service` (a DNS label) and `ports` is reachable by that name and these TCP ports from all others of the group,
        and from nowhere else; the group has it by its name, as `group["db"]`. Raises BadRequest, Busy (no room for all of them within `wait` seconds), SandboxLost (one of them ended first) or WaitTimeout.
        """
        client = client or await default_client()
        return await groups.created(
            client,
            "/group",
            {"members": group_bodies.members(of, create)},
            idempotency_key=idempotency_key,
            wait=wait,
            span="sandlot.create_group",
            make=lambda info, auth: cls(client=client, info=info, auth=auth),
        )

    @classmethod
    async def connect(cls, sandbox_id: str, *, client: AsyncClient | None = None) -> AsyncSandbox:
        """Return the sandbox with this id. Raises NotFound."""
        client = client or await default_client()
        path = f"/sandbox/{checks.path_part(sandbox_id, name='sandbox_id')}"
        document = await client.call("GET", path, sandbox_id=sandbox_id)
        return cls(client=client, info=documents.sandbox_info(document), auth=document.get("gatewayAuth"))

    @classmethod
    async def map(
        cls,
        function: Callable[[AsyncSandbox, Item], Awaitable[Result]],
        items: Iterable[Item],
        *,
        concurrency: int = 64,
        progress: Callable[[Progress], None] | None = None,
        return_exceptions: bool = False,
        attempts: int = 1,
        resume: str | os.PathLike[str] | None = None,
        key: Callable[[Item], str] | None = None,
        create_for: Callable[[Item], Awaitable[Mapping[str, Any]]] | None = None,
        **create: Any,
    ) -> list[Any]:
        """Call `function(box, item)` for every item, each in a new sandbox that is deleted afterwards.

        At most `concurrency` calls run at once; results are in the order of the items. `progress` is called after
        each item. The first error ends the batch, unless `return_exceptions` returns errors in place of results.

        `attempts` is how often an item is called at most: again, in another sandbox, only after a SandboxLost that
        neither the code nor the caller caused (`infrastructure`). `resume` names a file that keeps each result, as
        JSON, once it is there: a later run with the same file calls only the items without one. `key` names an item in
        it (default: the item itself, which then must be JSON). All other arguments go to `create`, and what
        `create_for(item)` returns: it is called before each call of an item, and can name an image for it, or the last
        checkpoint that an interrupted one has made. Raises ConfigError if the file has something else.
        """
        if attempts < 1:
            raise ValueError(f"attempts: {attempts} is not 1 or more")

        async def called(item: Item) -> Result:
            for left in reversed(range(attempts)):
                own: Mapping[str, Any] = {} if create_for is None else await create_for(item)
                try:
                    async with await cls.create(**{**create, **own}) as box:
                        return await function(box, item)
                except SandboxLost as error:
                    if not left or not error.infrastructure:
                        raise
            raise AssertionError

        if resume is None:
            return await each(
                called,
                items,
                concurrency=concurrency,
                return_exceptions=return_exceptions,
                progress=progress,
            )
        entries, kept = result_keys(items, key), ResultFile(resume)

        async def recalled(entry: tuple[str, Item]) -> Any:
            name, item = entry
            if name not in kept.results:
                result = await called(item)
                kept.record(name, result)
                return result
            return kept.results[name]

        try:
            return await each(
                recalled,
                entries,
                concurrency=concurrency,
                return_exceptions=return_exceptions,
                progress=progress,
            )
        finally:
            kept.close()

    # reset

    async def reset(self) -> SandboxInfo:
        """Kill all processes and drop all changes, so that the sandbox is as it was when created; it stays yours."""
        await self.client.call(
            "POST", f"/sandbox/{self.id}/reset", safe=False, timeout=120.0, sandbox_id=self.id
        )
        document = await self.client.call("GET", f"/sandbox/{self.id}", sandbox_id=self.id)
        self.info = documents.sandbox_info(document)
        await begin_again(self.files, document.get("startCommand"))
        return self.info


async def _forget(client: AsyncClient, body: Mapping[str, Any]) -> None:
    """Delete the sandbox of an abandoned create; repeating its idempotency key returns the id."""
    try:
        again = {**body, "wait_seconds": 0}
        document = await client.call("POST", "/sandbox", body=again, timeout=CLEANUP, patience=CLEANUP)
    except SandlotError:
        return
    await delete_quietly(client, str(document.get("id", "")))
