"""Groups from compose files: what starts after what, and when all of it is healthy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from sandlot._async import groups
from sandlot._async.client import AsyncClient, default_client
from sandlot._async.commands import AsyncCommands
from sandlot._async.groups import AsyncGroup
from sandlot._async.handle import AsyncHandle
from sandlot._protocol import groups as group_bodies
from sandlot._tasks_async import now, shielded, sleep
from sandlot.errors import Unhealthy, WaitTimeout

if TYPE_CHECKING:
    from sandlot._async.files import AsyncFiles
    from sandlot._compose.group import Healthcheck, Member


class AsyncComposed(AsyncHandle):
    """Creates groups from compose files; a base class of `AsyncSandbox`."""

    @classmethod
    async def create_group_from_compose(
        cls,
        compose: str | os.PathLike[str] | Mapping[str, Any],
        *,
        variables: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        wait: float = 300.0,
        client: AsyncClient | None = None,
        **create: Any,
    ) -> AsyncGroup[Self]:
        """Create the services of a compose file (its path or its content) as a group, all or none.

        It returns once all run and each healthcheck has succeeded. A service's command starts when those of its
        `depends_on` run or are healthy. `variables` replace `${NAME}` (default: the environment's). `create` are arguments
        for all of them, as in `create`; the file's have precedence. Raises ValueError for what has no counterpart, with the
        service and key; Unhealthy; and as `create_group` does. Then none of the group is left.
        """
        from sandlot._compose import group as compose_group  # nothing else needs it

        document, source = compose_group.read(compose)
        given = os.environ if variables is None else variables
        members = compose_group.members_of(document, source=source, variables=given)
        client = client or await default_client()
        until = now() + wait
        group = await groups.created(
            client,
            "/group",
            {"members": group_bodies.members([member.create() for member in members], create)},
            idempotency_key=idempotency_key,
            wait=wait,
            span="sandlot.create_group",
            make=lambda info, auth: cls(client=client, info=info, auth=auth),
        )
        try:
            await _brought_up(group.services, members, until=until)
        except BaseException:
            await shielded(lambda: groups.delete_quietly(client, group.id))
            raise
        return group


async def _brought_up(boxes: Mapping[str, Any], members: Sequence[Member], *, until: float) -> None:
    """Let each command begin in its turn, and wait for all healthchecks. `members` are in the order of their turns."""
    from sandlot._compose.group import HEALTHY
    from sandlot._compose.waiting import MARK

    checks = {member.service.name: member.health for member in members}
    for member in members:
        if member.service.workdir is not None:
            await boxes[member.service.name].files.mkdir(member.service.workdir)
    for member in members:
        for name, condition in member.after.items():
            check = checks[name]
            if condition == HEALTHY and check is not None:
                await _healthy(boxes[name], name, check, until=until)
                checks[name] = None
        if member.after:
            await boxes[member.service.name].files.write(MARK, b"")
    for name, check in checks.items():
        if check is not None:
            await _healthy(boxes[name], name, check, until=until)


async def begin_again(files: AsyncFiles, start_command: object) -> None:
    """After a reset of a service, make again what its command waits for. `start_command`: as the server tells it."""
    from sandlot._compose.waiting import awaited

    waits = awaited(start_command)
    if waits.workdir is not None:
        await files.mkdir(waits.workdir)
    if waits.mark is not None:
        await files.write(waits.mark, b"")


async def _healthy(box: AsyncCommands, name: str, check: Healthcheck, *, until: float) -> None:
    """Wait until the check succeeds. Raises Unhealthy after so many failures in a row, and WaitTimeout."""
    begun, failures = now(), 0
    while True:
        done = await box.exec(check.test, timeout=check.timeout)
        if done.exit_code == 0:
            return
        starting = now() - begun < check.start_period
        failures = 0 if starting else failures + 1
        if failures >= check.retries:
            said = (done.stderr or done.stdout).strip()[-200:]
            raise Unhealthy(
                f"service {name!r} is not healthy: its healthcheck failed {failures} times, at last with exit code"
                f" {done.exit_code}: {said or 'no output'}"
            )
        pause = check.start_interval if starting else check.interval
        if now() + pause > until:
            raise WaitTimeout(
                f"service {name!r} is not healthy yet, and the time to wait is over: wait longer"
            )
        await sleep(pause)
