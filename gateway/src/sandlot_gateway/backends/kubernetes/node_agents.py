"""The node agents: where they are, by the watch of their pods, and calls of their API (docs/images.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from sandlot_contract.node_agent import LONGEST_WAIT
from sandlot_contract.ports import NODE_AGENT_PORT
from sandlot_kube.objects import Pod
from sandlot_kube.registry_credentials import Auth

from sandlot_gateway.core.bad_json import NOT_JSON

from ...data.pool import Answer, HttpPool, PoolError

_UNKNOWN = "failed"  # code of an answer that names none


class AgentError(Exception):
    """An agent's answer that it cannot do this, with its code and its text."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AgentUnreachable(Exception):
    """No agent runs on the node, it does not answer itself, or it rejects this gateway's token."""


class ImageConfig(msgspec.Struct):
    env: dict[str, str] = {}
    workdir: str = "/"
    user: str = ""
    entrypoint: list[str] = []
    cmd: list[str] = []
    stop_signal: str = ""


class Prepared(msgspec.Struct):
    """An image that is prepared on a node."""

    id: str
    rootfs: str
    config: ImageConfig = msgspec.field(default_factory=ImageConfig)
    names: list[str] = []
    since: float | None = None  # when the use began that was asked for; None: an earlier version


class Progress(msgspec.Struct):
    """How far a preparation is, in bytes."""

    phase: str
    done: int = 0
    total: int | None = None


class _List(msgspec.Struct):
    images: list[Prepared]


class _Error(msgspec.Struct):
    code: str = ""
    detail: str = ""


class NodeAgents:
    """Raises AgentError or AgentUnreachable from every call. Reads the token again when an agent rejects it."""

    def __init__(self, *, pool: HttpPool, token_file: Path, timeout: float) -> None:
        """Read the token. Raises OSError."""
        self._pool = pool
        self._token_file = token_file
        self._token = _read(token_file)
        self._timeout = timeout
        self._pods: dict[str, tuple[str, str]] = {}  # pod -> (node, address), the latest last

    # The watch.

    def replaced(self, pods: list[Pod]) -> None:
        self._pods.clear()
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: Pod) -> None:
        node, ip = pod.spec.node_name, pod.status.pod_ip
        over = pod.metadata.deletion_timestamp is not None or pod.status.terminal
        if over or node is None or ip is None:
            self.deleted(pod)
        else:
            address = f"[{ip}]:{NODE_AGENT_PORT}" if ":" in ip else f"{ip}:{NODE_AGENT_PORT}"
            self._pods[pod.metadata.name] = (node, address)

    def deleted(self, pod: Pod) -> None:
        gone = self._pods.pop(pod.metadata.name, None)
        if gone is not None:
            self._pool.forget(gone[1])

    @property
    def nodes(self) -> set[str]:
        """Return the nodes on which an agent runs."""
        return {node for node, _ in self._pods.values()}

    # Calls.

    async def prepare(
        self, node: str, image: str, *, tenant: str, auth: Auth | None, wait: float, slot: str | None = None
    ) -> Prepared | Progress:
        """Return the image, or how far its preparation is after `wait` seconds, or after as many as an agent waits.

        `slot`: a pod that uses the image if it is there already; its `since` is set then.
        """
        wait = min(wait, LONGEST_WAIT)
        body: dict[str, Any] = {"image": image, "tenant": tenant}
        if auth is not None:
            body["auth"] = auth.document()
        using = "" if slot is None else f"&slot={quote(slot, safe='')}"
        answer = await self._call(
            node, "POST", f"/v1/images?wait={wait:g}{using}", body, timeout=wait + self._timeout
        )
        return _decoded(answer, node, Progress if answer.status == 202 else Prepared)

    async def use(self, node: str, image_id: str, *, slot: str) -> Prepared:
        """Record that a pod uses an image; the error's code is `not_found` if the node has it no more."""
        answer = await self._call(node, "POST", f"{_path(image_id)}/uses", {"slot": slot})
        return _decoded(answer, node, Prepared)

    async def unuse(self, node: str, image_id: str, *, slot: str, until: float | None = None) -> None:
        """Record that a pod no longer uses an image, unless it began to after `until`."""
        query = "" if until is None else f"?until={until!r}"
        await self._call(node, "DELETE", f"{_path(image_id)}/uses/{quote(slot, safe='')}{query}")

    async def images(self, node: str) -> list[Prepared]:
        return _decoded(await self._call(node, "GET", "/v1/images"), node, _List).images

    async def _call(
        self,
        node: str,
        method: str,
        target: str,
        body: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Answer:
        address = next((where for its, where in reversed(self._pods.values()) if its == node), None)
        if address is None:
            raise AgentUnreachable(
                f"no node agent runs on node {node}, which has to prepare the image; look at its DaemonSet"
            )
        answer = await self._send(address, node, method, target, body, timeout=timeout)
        if answer.status == 401 and (token := self._new_token()) is not None:
            self._token = token
            answer = await self._send(address, node, method, target, body, timeout=timeout)
        if answer.status == 401:
            raise AgentUnreachable(
                f"the node agent of {node} rejected this gateway's token; do their Secrets differ?"
            )
        if answer.status >= 400:
            try:
                error = msgspec.json.decode(answer.body, type=_Error)
            except NOT_JSON:
                error = _Error()
            if answer.status >= 500 and not error.code:
                # Its server's own answer, as to a request that the agent's end cut off: the next agent knows better.
                raise AgentUnreachable(
                    f"the node agent of {node} answered {answer.status} without a reason; look at its pod's log"
                )
            raise AgentError(
                error.code or _UNKNOWN, error.detail or f"the node agent of {node} answered {answer.status}"
            )
        return answer

    def _new_token(self) -> str | None:
        try:
            token = _read(self._token_file)
        except (OSError, ValueError) as error:
            raise AgentUnreachable(
                f"cannot read the node agents' token: {error}; check --node-agent-token-file"
            ) from error
        return token if token != self._token else None

    async def _send(
        self,
        address: str,
        node: str,
        method: str,
        target: str,
        body: dict[str, Any] | None,
        *,
        timeout: float | None,
    ) -> Answer:
        headers = [("authorization", f"Bearer {self._token}"), ("content-type", "application/json")]
        try:
            return await self._pool.fetch(
                address,
                method,
                target,
                headers=headers,
                body=b"" if body is None else msgspec.json.encode(body),
                timeout=timeout or self._timeout,
            )
        except (PoolError, ValueError) as error:
            raise AgentUnreachable(
                f"the node agent of {node} does not answer: {error}; look at its pod's log"
            ) from error


def _path(image_id: str) -> str:
    return f"/v1/images/{quote(image_id, safe=':')}"


def _read(path: Path) -> str:
    return path.read_text().strip()


def _decoded(answer: Answer, node: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except NOT_JSON as error:
        raise AgentUnreachable(
            f"the answer of the node agent of {node} cannot be read: {error}; do their versions differ?"
        ) from error
