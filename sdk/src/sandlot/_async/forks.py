"""Forks of a sandbox: others with its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from sandlot._async import groups
from sandlot._async.groups import AsyncGroup
from sandlot._async.handle import AsyncHandle
from sandlot._protocol import groups as group_bodies
from sandlot._protocol.checks import Command


class AsyncForks(AsyncHandle):
    """Forks a sandbox; a base class of `AsyncSandbox`."""

    async def fork(
        self,
        n: int = 1,
        *,
        start_command: bool | Command = False,
        name: str | None = None,
        labels: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        wait: float = 300.0,
    ) -> AsyncGroup[Self]:
        """Create `n` sandboxes with the files that this one has now, all or none, and wait until all run.

        Processes and memory are not copied. This sandbox goes on; what one of them writes from now on, no other sees. They
        are as this one was created, under its present egress policy. `start_command=True` runs its start command in each,
        a command another one; by default none runs. `labels` and `timeout` (seconds) replace its own. `secrets` has
        the values of those that its own create had, which the server does not keep. Raises BadRequest, Conflict (it
        does not run), Busy (no room for all within `wait` seconds), SandboxLost (its files cannot be copied, or one of
        them ended first), ServerError (no space for a copy) or WaitTimeout.
        """
        return await groups.created(
            self.client,
            f"/sandbox/{self.id}/fork",
            group_bodies.forks(
                n, start_command=start_command, name=name, labels=labels, secrets=secrets, timeout=timeout
            ),
            idempotency_key=idempotency_key,
            wait=wait,
            span="sandlot.fork",
            make=lambda info, auth: type(self)(client=self.client, info=info, auth=auth),
        )
