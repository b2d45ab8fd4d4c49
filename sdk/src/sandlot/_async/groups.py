"""Groups of sandboxes that are created together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from sandlot._async.client import CLEANUP, AsyncClient
from sandlot._protocol import calls, documents, tracing
from sandlot._tasks_async import ABANDONED, now, shielded, sleep
from sandlot.errors import Busy, ConnectionFailed, NotFound, SandboxLost, SandlotError, WaitTimeout
from sandlot.models import SandboxInfo

Box = TypeVar("Box")

HOLD_SECONDS = 20.0  # how long one request lets the server wait for the group
PAUSE = 0.2  # seconds between two of them
MAX_DEADLINE = 3600.0


class AsyncGroup(Generic[Box]):
    """The sandboxes of a group, in the order of the request. `async with` deletes all at the end of the block.

    `services` has those that are services, by name.
    """

    def __init__(
        self,
        *,
        client: AsyncClient,
        group_id: str,
        boxes: Sequence[Box],
        services: Mapping[str, Box] | None = None,
    ) -> None:
        self.client = client
        self.id = group_id
        self.boxes = tuple(boxes)
        self.services = dict(services or {})

    def __len__(self) -> int:
        return len(self.boxes)

    def __iter__(self) -> Iterator[Box]:
        return iter(self.boxes)

    def __getitem__(self, index: int | str) -> Box:
        """Return a sandbox by its place, or a service by its name. Raises IndexError and KeyError."""
        return self.services[index] if isinstance(index, str) else self.boxes[index]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {len(self)}>"

    async def __aenter__(self) -> AsyncGroup[Box]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await shielded(lambda: delete_quietly(self.client, self.id))
        else:
            await shielded(self.delete)

    async def delete(self) -> None:
        """End all sandboxes of the group; one that has already ended is no error."""
        try:
            await self.client.call("DELETE", f"/group/{self.id}", timeout=120.0)
        except NotFound:
            return


async def created(
    client: AsyncClient,
    path: str,
    asked: Mapping[str, Any],
    *,
    idempotency_key: str | None,
    wait: float,
    span: str,
    make: Callable[[SandboxInfo, Mapping[str, Any] | None], Box],
) -> AsyncGroup[Box]:
    """Create what is asked for, a group, and wait for it. Raises BadRequest, Busy, SandboxLost or WaitTimeout; then none of it is left."""
    if wait <= 0:
        raise ValueError("wait: must be more than 0 seconds, since a group is handed out as a whole")
    key = idempotency_key or calls.new_id()
    deadline = now() + wait
    with tracing.span(span):
        try:
            while True:
                left = max(deadline - now(), 0.0)
                body = {
                    **asked,
                    "idempotency_key": key,
                    # Longer than its deadline, which says more than that the time is over.
                    "wait_seconds": min(left + 1.0, HOLD_SECONDS),
                    "deadline_seconds": max(1.0, min(left, MAX_DEADLINE)),
                }
                try:
                    document = await client.call(
                        "POST", path, body=body, timeout=HOLD_SECONDS + 30, patience=left + CLEANUP
                    )
                except Busy as error:
                    # Not by the client, which would ask for minutes: the time to wait is over with the deadline.
                    pause = error.retry_after or 1.0
                    if now() + pause >= deadline:
                        raise
                    await sleep(pause)
                    continue
                group_id = str(document.get("id", ""))
                status = document.get("status")
                if status == "RUNNING":
                    return _group(client, group_id, document, make)
                if status != "PENDING":
                    message = str(document.get("message") or f"the group is {status}")
                    raise SandboxLost(message, verdict=str(document.get("verdict") or "start_failed"))
                if now() >= deadline:
                    raise WaitTimeout(
                        f"group {group_id} of {document.get('size')} is not complete after {wait:g} s: wait longer,"
                        " create a smaller group, or keep a pool of its image"
                    )
                await sleep(PAUSE)
        except (*ABANDONED, ConnectionFailed, WaitTimeout):  # after any other answer none of it is left
            if idempotency_key is None:  # else another caller may use it
                await shielded(lambda: _forget(client, path, asked, key))
            raise


def _group(
    client: AsyncClient,
    group_id: str,
    document: documents.Document,
    make: Callable[[SandboxInfo, Mapping[str, Any] | None], Box],
) -> AsyncGroup[Box]:
    found: list[documents.Document] = document.get("sandboxes") or []
    infos = [documents.sandbox_info(one) for one in found]
    boxes = [make(info, one.get("gatewayAuth")) for info, one in zip(infos, found, strict=True)]
    services = {info.service: box for info, box in zip(infos, boxes, strict=True) if info.service is not None}
    return AsyncGroup(client=client, group_id=group_id, boxes=boxes, services=services)


async def delete_quietly(client: AsyncClient, group_id: str) -> None:
    """Delete the group and ignore failures, which would hide the error that is being raised."""
    try:
        await client.call("DELETE", f"/group/{group_id}", timeout=CLEANUP, patience=CLEANUP)
    except SandlotError:
        return


async def _forget(client: AsyncClient, path: str, asked: Mapping[str, Any], key: str) -> None:
    """Delete the group of an abandoned create; repeating its idempotency key returns the id."""
    body = {**asked, "idempotency_key": key, "wait_seconds": 0, "deadline_seconds": 1}
    try:
        document = await client.call("POST", path, body=body, timeout=CLEANUP, patience=CLEANUP)
    except SandlotError:
        return
    await delete_quietly(client, str(document.get("id", "")))
