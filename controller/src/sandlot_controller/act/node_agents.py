"""Asks node agents which images their node has, and to prepare one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot_contract.images import registry_of
from sandlot_contract.ports import NODE_AGENT_PORT
from sandlot_kube.registry_credentials import Auth

from .pod_http import CALL_ERRORS, PodHttp

_HOLD = 20  # seconds that an agent holds a call while it prepares
_ASK_TIMEOUT = 10.0
_LONGEST = 3600.0  # seconds for one image
_LOOKS = 50  # nodes that are asked for their images at one time
# Codes of failures that the same call meets again, on every node.
_FINAL = frozenset(["invalid", "not_allowed", "not_found"])
UNAUTHORIZED = "unauthorized"  # without the credentials of another tenant
NO_SPACE = "no_space"
WRONG_PLATFORM = "wrong_platform"
UNSUPPORTED = "unsupported"  # the node prepares no image


class AgentError(Exception):
    """An agent cannot do it, or gave no answer; `code` is the agent's, `unreachable` without an answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def final(self) -> bool:
        """Whether no node will ever have the image."""
        return self.code in _FINAL


def needs_credentials(image: str, tenant: str, error: AgentError) -> AgentError:
    """Return the error for an image that its registry refuses to a tenant without credentials for it."""
    text = (
        f"image {image} needs credentials: tenant {tenant!r} has none for {registry_of(image)}. Add them to "
        f"{tenant}.json in the Secret that gateway.registryCredentialsSecret names, and create the warm-up again. {error}"
    )
    return AgentError(error.code, text)


@dataclass(frozen=True, slots=True)
class NodeImages:
    """What a node has: bytes that prepared images may take, and each image's bytes by its names.

    `busy`: names and bytes of the images that slots use. `platform`: empty if its agent does not say. `preparing`: names that
    it prepares, whoever asked.
    """

    room: int
    present: dict[str, int]
    platform: str = ""
    busy: tuple[tuple[frozenset[str], int], ...] = ()
    preparing: frozenset[str] = frozenset()


class NodeAgents:
    """Client of all node agents; `close` it at the end."""

    def __init__(self, token_file: Path | None, *, port: int = NODE_AGENT_PORT) -> None:
        """`token_file`: None if the cluster has no node agents."""
        self._token_file = token_file
        self._http = PodHttp(port=port)
        self._looks = asyncio.Semaphore(_LOOKS)

    @property
    def enabled(self) -> bool:
        return self._token_file is not None

    async def images(self, address: str) -> NodeImages:
        """Return what a node has. Raises AgentError."""
        async with self._looks:
            usage = await self._ask("GET", address, "/v1/usage", seconds=_ASK_TIMEOUT)
            listed = await self._ask("GET", address, "/v1/images?brief=true", seconds=_ASK_TIMEOUT)
        try:
            images = [
                (frozenset(str(name) for name in image["names"]), int(image["bytes"]), bool(image["uses"]))
                for image in listed["images"]
            ]
            return NodeImages(
                int(usage["budget"]),
                {name: size for names, size, _ in images for name in names},
                str(usage.get("platform", "")),
                tuple((names, size) for names, size, used in images if used),
                frozenset(str(name) for name in listed.get("preparing", ())),  # an earlier agent does not say
            )
        except (KeyError, TypeError, ValueError) as error:
            raise AgentError(
                "unreachable", f"{address} is no node agent of this version: {error!r}"
            ) from error

    async def prepare(self, address: str, image: str, *, tenant: str, auth: Auth | None) -> int:
        """Wait until a node has an image; return its bytes. Raises AgentError."""
        body: dict[str, Any] = {"image": image, "tenant": tenant}
        if auth is not None:
            body["auth"] = auth.document()
        try:
            async with asyncio.timeout(_LONGEST):
                while True:
                    path = f"/v1/images?wait={_HOLD}"
                    told = await self._ask("POST", address, path, body=body, seconds=_HOLD + _ASK_TIMEOUT)
                    if told.get("status") == "ready":
                        return int(told.get("bytes") or 0)
                    await asyncio.sleep(0.1)  # an agent that does not hold the call
        except TimeoutError as error:
            raise AgentError("unavailable", f"not prepared after {_LONGEST:g} s") from error

    async def close(self) -> None:
        await self._http.close()

    async def _ask(
        self, method: str, address: str, path: str, *, seconds: float, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        url = self._http.url(address, path)
        try:
            async with self._http.call(
                method, url, token=self._token(), body=body, seconds=seconds
            ) as answer:
                document: Any = await answer.json(content_type=None)
        except CALL_ERRORS as error:
            raise AgentError(
                "unreachable", f"the node agent at {url} gave no answer: {str(error) or type(error).__name__}"
            ) from error
        told: dict[str, Any] = document if isinstance(document, dict) else {}
        if answer.status not in (200, 202):
            text = str(told.get("detail") or f"the node agent at {url} responded with {answer.status}")
            raise AgentError(str(told.get("code") or "failed"), text)
        return told

    def _token(self) -> str:
        """Read it each time, since it may be rotated. Raises OSError."""
        return "" if self._token_file is None else self._token_file.read_text().strip()
