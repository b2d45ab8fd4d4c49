# This file is auto-generated from sdk/src/sandlot/_async/sandbox.py by tools/async_to_sync.py: do not change it.
"""One sandbox: create, find and reset it; its base classes delete it, run commands, set its network and so on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sandlot._protocol import calls, checks, documents, tracing
from sandlot._protocol import groups as group_bodies
from sandlot._protocol.checks import Command
from sandlot._resume import ResultFile, result_keys
from sandlot._sync import groups
from sandlot._sync.bulk import Bulk
from sandlot._sync.checkpoints import Checkpoints
from sandlot._sync.client import CLEANUP, Client, default_client
from sandlot._sync.commands import Commands
from sandlot._sync.composed import Composed, begin_again
from sandlot._sync.contexts import PythonContexts
from sandlot._sync.files import Files
from sandlot._sync.forks import Forks
from sandlot._sync.groups import Group
from sandlot._sync.lifecycle import Lifecycle, delete_quietly
from sandlot._sync.network import Network
from sandlot._tasks_sync import ABANDONED, each, now, shielded
from sandlot.builds import Built
from sandlot.errors import SandboxLost, SandlotError
from sandlot.models import CheckpointInfo, Progress, SandboxInfo

Item = TypeVar("Item")
Result = TypeVar("Result")

HOLD_SECONDS = 20.0  # how long one create request lets the server wait for the sandbox


class Sandbox(
    Lifecycle,
    Bulk,
    Commands,
    PythonContexts,
    Network,
    Checkpoints,
    Forks,
    Composed,
):
    """A sandbox on a server. `with` deletes it at the end of the block."""

    def __init__(self, *, client: Client, info: SandboxInfo, auth: Mapping[str, Any] | None = None) -> None:
        super().__init__(client=client, info=info, auth=auth)
        self.files = Files(plane=self._plane)

    # create and find

    @classmethod
    def create(
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
        client: Client | None = None,
    ) -> Sandbox:
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
        client = client or default_client()
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
                document = client.call("POST", "/sandbox", body=body, timeout=HOLD_SECONDS + 30)
            except ABANDONED:
                if idempotency_key is None:  # else another caller may have made it and use it
                    shielded(lambda: _forget(client, body))
                raise
            box = cls(client=client, info=documents.sandbox_info(document), auth=document.get("gatewayAuth"))
            if wait > 0:
                try:
                    box.wait_ready(timeout=max(0.0, deadline - now()))
                except (*ABANDONED, SandlotError):
                    if idempotency_key is None:
                        shielded(lambda: delete_quietly(client, box.id))
                    raise
        return box

    @classmethod
    def create_group(
        cls,
        of: int | Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        wait: float = 300.0,
        client: Client | None = None,
        **create: Any,
    ) -> Group[Sandbox]:
        """Create `of` sandboxes, all or none, and wait until all run. Other arguments as in `create`.

        `of` may be several kinds, each a mapping with arguments of its own and a `count` (default 1). One with a
        `service` (a DNS label) and `ports` is reachable by that name and these TCP ports from all others of the group,
        and from nowhere else; the group has it by its name, as `group["db"]`. Raises BadRequest, Busy (no room for all of them within `wait` seconds), SandboxLost (one of them ended first) or WaitTimeout.
        """
        client = client or default_client()
        return groups.created(
            client,
            "/group",
            {"members": group_bodies.members(of, create)},
            idempotency_key=idempotency_key,
            wait=wait,
            span="sandlot.create_group",
            make=lambda info, auth: cls(client=client, info=info, auth=auth),
        )

    @classmethod
    def connect(cls, sandbox_id: str, *, client: Client | None = None) -> Sandbox:
        """Return the sandbox with this id. Raises NotFound."""
        client = client or default_client()
        path = f"/sandbox/{checks.path_part(sandbox_id, name='sandbox_id')}"
        document = client.call("GET", path, sandbox_id=sandbox_id)
        return cls(client=client, info=documents.sandbox_info(document), auth=document.get("gatewayAuth"))

    @classmethod
    def map(
        cls,
        function: Callable[[Sandbox, Item], Result],
        items: Iterable[Item],
        *,
        concurrency: int = 64,
        progress: Callable[[Progress], None] | None = None,
        return_exceptions: bool = False,
        attempts: int = 1,
        resume: str | os.PathLike[str] | None = None,
        key: Callable[[Item], str] | None = None,
        create_for: Callable[[Item], Mapping[str, Any]] | None = None,
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

        def called(item: Item) -> Result:
            for left in reversed(range(attempts)):
                own: Mapping[str, Any] = {} if create_for is None else create_for(item)
                try:
                    with cls.create(**{**create, **own}) as box:
                        return function(box, item)
                except SandboxLost as error:
                    if not left or not error.infrastructure:
                        raise
            raise AssertionError

        if resume is None:
            return each(
                called,
                items,
                concurrency=concurrency,
                return_exceptions=return_exceptions,
                progress=progress,
            )
        entries, kept = result_keys(items, key), ResultFile(resume)

        def recalled(entry: tuple[str, Item]) -> Any:
            name, item = entry
            if name not in kept.results:
                result = called(item)
                kept.record(name, result)
                return result
            return kept.results[name]

        try:
            return each(
                recalled,
                entries,
                concurrency=concurrency,
                return_exceptions=return_exceptions,
                progress=progress,
            )
        finally:
            kept.close()

    # reset

    def reset(self) -> SandboxInfo:
        """Kill all processes and drop all changes, so that the sandbox is as it was when created; it stays yours."""
        self.client.call("POST", f"/sandbox/{self.id}/reset", safe=False, timeout=120.0, sandbox_id=self.id)
        document = self.client.call("GET", f"/sandbox/{self.id}", sandbox_id=self.id)
        self.info = documents.sandbox_info(document)
        begin_again(self.files, document.get("startCommand"))
        return self.info


def _forget(client: Client, body: Mapping[str, Any]) -> None:
    """Delete the sandbox of an abandoned create; repeating its idempotency key returns the id."""
    try:
        again = {**body, "wait_seconds": 0}
        document = client.call("POST", "/sandbox", body=again, timeout=CLEANUP, patience=CLEANUP)
    except SandlotError:
        return
    delete_quietly(client, str(document.get("id", "")))
