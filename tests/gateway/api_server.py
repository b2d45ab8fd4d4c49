"""An API server in memory, as far as gateways use one: objects, their versions, watches that are told when a test says."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from sandlot_kube import paths
from sandlot_kube.errors import KubeError, KubeUnreachable
from sandlot_kube.pages import Pages

NAMESPACE = "default"
SANDBOXES, PODS, POOLS = paths.sandboxes(NAMESPACE), paths.pods(NAMESPACE), paths.pools(NAMESPACE)
_EPOCH = 1_800_000_000.0


@dataclass(frozen=True)
class Change:
    collection: str
    kind: str
    object: dict[str, Any]


class ApiServer:
    """`log` is all that has happened; the version of an object is the length of the log after its last change."""

    def __init__(self, *, time: Callable[[], float]) -> None:
        self._time = time
        self.objects: dict[str, dict[str, dict[str, Any]]] = {SANDBOXES: {}, PODS: {}, POOLS: {}}
        self.log: list[Change] = []
        self.watches: list[Watch] = []
        self.lists: list[List] = []  # those that are on their way

    def now(self) -> float:
        """Unix seconds."""
        return _EPOCH + self._time()

    def request(self, method: str, path: str, body: object) -> bytes:
        """Raises KubeError."""
        collection, name, subresource = self._split(path)
        objects = self.objects[collection]
        if method == "GET" and name is None:
            return json.dumps(
                {"metadata": {"resourceVersion": str(len(self.log))}, "items": list(objects.values())}
            ).encode()
        document: dict[str, Any] = json.loads(msgspec.json.encode(body)) if body is not None else {}
        if method == "POST":
            name = document["metadata"]["name"]
            if name in objects:
                raise KubeError(status=409, reason="AlreadyExists", message=f"{name} already exists")
            return self.put(collection, name, {"status": {}, **document})
        if name is None or name not in objects:
            raise KubeError(status=404, reason="NotFound", message=f"{name} not found")
        if method == "GET":
            return json.dumps(objects[name]).encode()
        if method == "DELETE":
            return self.delete(collection, name)
        assert method == "PATCH", method
        part = {"status": document["status"]} if subresource == "status" else {
            key: value for key, value in document.items() if key != "status"
        }  # fmt: skip
        after = _merged(objects[name], part)
        _check(objects[name], after)
        return self.put(collection, name, after)

    def put(self, collection: str, name: str, document: dict[str, Any]) -> bytes:
        before = self.objects[collection].get(name)
        document = copy.deepcopy(document)
        version = str(len(self.log) + 1)
        uid = before["metadata"]["uid"] if before is not None else f"uid-{version}"
        document.setdefault("metadata", {}).update(resourceVersion=version, uid=uid)
        self.objects[collection][name] = document
        self.log.append(Change(collection, "ADDED" if before is None else "MODIFIED", document))
        return json.dumps(document).encode()

    def delete(self, collection: str, name: str) -> bytes:
        document = copy.deepcopy(self.objects[collection].pop(name))
        document["metadata"]["resourceVersion"] = str(len(self.log) + 1)
        self.log.append(Change(collection, "DELETED", document))
        return b"{}"

    def _split(self, path: str) -> tuple[str, str | None, str | None]:
        collection = next(one for one in self.objects if path == one or path.startswith(f"{one}/"))
        rest = path[len(collection) + 1 :].split("/")
        return collection, rest[0] or None, rest[1] if len(rest) > 1 else None


class Reader(Protocol):
    """Whose watch it is."""

    alive: bool


@dataclass(eq=False)
class Watch:
    reader: Reader
    api: ApiServer
    collection: str
    at: int
    told: asyncio.Queue[Change | KubeError] = field(default_factory=asyncio.Queue)

    def backlog(self) -> bool:
        return any(change.collection == self.collection for change in self.api.log[self.at :])

    def tell(self) -> None:
        """The next change arrives."""
        while self.at < len(self.api.log):
            change = self.api.log[self.at]
            self.at += 1
            if change.collection == self.collection:
                self.told.put_nowait(change)
                return

    def fail(self) -> None:
        """What has not arrived is told by the next watch."""
        self.told.put_nowait(KubeUnreachable("the watch was cut"))

    def expire(self) -> None:
        """What has not arrived is found by the next list."""
        self.told.put_nowait(KubeError(status=410, reason="Expired"))


@dataclass(eq=False)
class List:
    """A list that takes long: it shows what was there when it began."""

    reader: Reader
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def backlog(self) -> bool:
        return not self.go.is_set()

    def tell(self) -> None:
        """Its last page arrives."""
        self.go.set()


class Client:
    """A `KubeClient`. Writes are sent by `send`, which answers with the body or the error. Reads are answered at once,
    but for the list after a watch has expired.
    """

    namespace = NAMESPACE

    def __init__(self, api: ApiServer, reader: Reader, *, send: Callable[[str, str, object], Any]) -> None:
        self._api = api
        self._reader = reader
        self._send = send
        self._expired: set[str] = set()  # paths to be listed again
        self.now = api.now

    def local(self, seconds: float) -> float:
        return seconds

    async def close(self) -> None:
        return

    async def request(
        self, method: str, path: str, *, body: object = None, timeout: float = 10.0, **_: Any
    ) -> bytes:
        if method == "GET":
            answer = self._api.request(method, path, body)
            if path in self._expired:
                self._expired.remove(path)
                await self._arrival(List(self._reader))
            return answer
        try:
            async with asyncio.timeout(timeout):
                answer = await self._send(method, path, body)
        except TimeoutError:
            raise KubeUnreachable("no answer in time") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pages(self, path: str, *, limit: int, **_: Any) -> Pages:
        return Pages(self, path, {"limit": str(limit)}, timeout=10.0)

    async def lines(
        self, path: str, *, params: Mapping[str, str], idle: float, opened: Callable[[], None]
    ) -> AsyncGenerator[bytes, None]:
        watch = Watch(self._reader, self._api, path, int(params["resourceVersion"]))
        self._api.watches.append(watch)
        try:
            opened()
            while True:
                change = await watch.told.get()
                if isinstance(change, KubeError):
                    if change.status == 410:
                        self._expired.add(path)
                    raise change
                yield json.dumps({"type": change.kind, "object": change.object}).encode()
        finally:
            self._api.watches.remove(watch)

    async def _arrival(self, listed: List) -> None:
        self._api.lists.append(listed)
        try:
            await listed.go.wait()
        finally:
            self._api.lists.remove(listed)


def _merged(before: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _check(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The rules of charts/sandlot/crds/sandboxes.yaml that tell what cannot change."""
    pod = before["spec"].get("podName")
    if pod is not None and after["spec"].get("podName") != pod:
        raise KubeError(status=422, reason="Invalid", message="spec: podName cannot change once it is set")
    was, now = before.get("status", {}), after.get("status", {})
    if was.get("phase") == "Ended" and (now.get("phase"), now.get("verdict")) != (
        "Ended",
        was.get("verdict"),
    ):
        raise KubeError(status=422, reason="Invalid", message="status: an end stays as it was first told")
