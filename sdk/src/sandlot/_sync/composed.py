# This file is auto-generated from sdk/src/sandlot/_async/composed.py by tools/async_to_sync.py: do not change it.
"""Groups from compose files: what starts after what, and when all of it is healthy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from sandlot._protocol import groups as group_bodies
from sandlot._sync import groups
from sandlot._sync.client import Client, default_client
from sandlot._sync.commands import Commands
from sandlot._sync.groups import Group
from sandlot._sync.handle import Handle
from sandlot._tasks_sync import now, shielded, sleep
from sandlot.errors import Unhealthy, WaitTimeout

if TYPE_CHECKING:
    from sandlot._compose.group import Healthcheck, Member
    from sandlot._sync.files import Files


class Composed(Handle):
    """Creates groups from compose files; a base class of `Sandbox`."""

    @classmethod
    def create_group_from_compose(
        cls,
        compose: str | os.PathLike[str] | Mapping[str, Any],
        *,
        variables: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        wait: float = 300.0,
        client: Client | None = None,
        **create: Any,
    ) -> Group[Self]:
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
        client = client or default_client()
        until = now() + wait
        group = groups.created(
            client,
            "/group",
            {"members": group_bodies.members([member.create() for member in members], create)},
            idempotency_key=idempotency_key,
            wait=wait,
            span="sandlot.create_group",
            make=lambda info, auth: cls(client=client, info=info, auth=auth),
        )
        try:
            _brought_up(group.services, members, until=until)
        except BaseException:
            shielded(lambda: groups.delete_quietly(client, group.id))
            raise
        return group


def _brought_up(boxes: Mapping[str, Any], members: Sequence[Member], *, until: float) -> None:
    """Let each command begin in its turn, and wait for all healthchecks. `members` are in the order of their turns."""
    from sandlot._compose.group import HEALTHY
    from sandlot._compose.waiting import MARK

    checks = {member.service.name: member.health for member in members}
    for member in members:
        if member.service.workdir is not None:
            boxes[member.service.name].files.mkdir(member.service.workdir)
    for member in members:
        for name, condition in member.after.items():
            check = checks[name]
            if condition == HEALTHY and check is not None:
                _healthy(boxes[name], name, check, until=until)
                checks[name] = None
        if member.after:
            boxes[member.service.name].files.write(MARK, b"")
    for name, check in checks.items():
        if check is not None:
            _healthy(boxes[name], name, check, until=until)


def begin_again(files: Files, start_command: object) -> None:
    """After a reset of a service, make again what its command waits for. `start_command`: as the server tells it."""
    from sandlot._compose.waiting import awaited

    waits = awaited(start_command)
    if waits.workdir is not None:
        files.mkdir(waits.workdir)
    if waits.mark is not None:
        files.write(waits.mark, b"")


def _healthy(box: Commands, name: str, check: Healthcheck, *, until: float) -> None:
    """Wait until the check succeeds. Raises Unhealthy after so many failures in a row, and WaitTimeout."""
    begun, failures = now(), 0
    while True:
        done = box.exec(check.test, timeout=check.timeout)
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
        sleep(pause)
