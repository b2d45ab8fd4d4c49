"""Asks sidecars whether they have an owner, and to end: only they know whether a claim is in progress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_contract.phases import Phase
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.stop_grace import is_stopping
from sandlot_contract.tls_files import TlsFiles
from sandlot_contract.verdicts import SandboxVerdict

from .pod_http import CALL_ERRORS, PodHttp, is_refusal

_AT_ONCE = 500  # calls, each of which has a connection


class SidecarUnreachable(Exception):
    """The sidecar gave no response, or an unexpected one."""


class SidecarUntrusted(SidecarUnreachable):
    """The sidecar and the controller refuse each other's TLS: whether it is dead is unknown."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a claimed sidecar, and the generation that it owns; None for what the sidecar does not tell."""

    sandbox_id: SandboxId | None
    generation: int | None = None


class EndAnswer(Enum):
    """What a sidecar makes of an end."""

    ENDED = auto()
    STOPPING = auto()  # it ends by itself, once its start command has stopped or has had its grace
    OWNED = auto()  # it goes on


class Sidecars:
    """Client of all sidecars; `close` it at the end."""

    def __init__(
        self, *, port: int = SIDECAR_PORT, timeout: float = 5.0, tls: TlsFiles | None = None
    ) -> None:
        """`tls`: for pods whose sidecar speaks it."""
        self._http = PodHttp(port=port, tls=tls)
        self._timeout = timeout
        self._calls = asyncio.Semaphore(_AT_ONCE)

    async def end_if_unclaimed(self, address: str, *, token: str) -> EndAnswer:
        """End a sidecar unless it is claimed. Raises SidecarUnreachable."""
        body = {
            "verdict": SandboxVerdict.DELETED,
            "message": "the controller retired this instance",
            "only_unclaimed": True,
        }
        return await self._end(address, body, token=token)

    async def end_with_owner(self, address: str, *, token: str) -> EndAnswer:
        """End a sidecar, or have it end with its owner if it has one (OWNED). Raises SidecarUnreachable."""
        message = "the controller retired this instance, whose node is being emptied"
        body = {
            "verdict": SandboxVerdict.DELETED,
            "message": message,
            "only_unclaimed": True,  # a sidecar of an earlier build, which knows no `after_owner`, spares its owner
            "after_owner": True,
        }
        return await self._end(address, body, token=token)

    async def end(
        self,
        address: str,
        *,
        token: str,
        verdict: str,
        message: str,
        only_of: SandboxId | None = None,
    ) -> EndAnswer:
        """End a sidecar unless another sandbox than `only_of` owns it. Raises SidecarUnreachable."""
        body = {"verdict": verdict, "message": message, **({} if only_of is None else {"only_of": only_of})}
        return await self._end(address, body, token=token)

    async def owner(self, address: str, *, token: str) -> Owner | None:
        """Return a sidecar's owner, or None if it has none. Raises SidecarUnreachable."""
        _, document = await self._ask("GET", address, "/v1/state", token=token)
        if document.get("phase") != Phase.CLAIMED:
            return None
        generation = document.get("generation")
        return Owner(document.get("sandbox_id"), generation if isinstance(generation, int) else None)

    async def _end(self, address: str, body: dict[str, Any], *, token: str) -> EndAnswer:
        status, state = await self._ask("POST", address, "/v1/end", token=token, body=body, accept=(200, 409))
        if is_stopping(state):
            return EndAnswer.STOPPING
        ended = status == 200 and state.get("phase") in (Phase.ENDED, Phase.FAILED)
        return EndAnswer.ENDED if ended else EndAnswer.OWNED

    async def _ask(
        self,
        method: str,
        address: str,
        path: str,
        *,
        token: str,
        body: dict[str, Any] | None = None,
        accept: tuple[int, ...] = (200,),
    ) -> tuple[int, dict[str, Any]]:
        url = self._http.url(address, path)
        # A call's time begins with its turn: while many are silent, one that waits would count as silent, too.
        async with self._calls:
            try:
                async with self._http.call(
                    method, url, token=token, body=body, seconds=self._timeout
                ) as answer:
                    if answer.status not in accept:
                        text = (await answer.content.read(200)).decode(errors="replace")
                        raise SidecarUnreachable(f"{url} responded with {answer.status}: {text}")
                    document = await answer.json(content_type=None)
            except CALL_ERRORS as error:
                text = f"{url}: {str(error) or type(error).__name__}"
                if url.startswith("https:") and is_refusal(error):
                    raise SidecarUntrusted(f"{text} (TLS: the sidecar's log may say why)") from error
                raise SidecarUnreachable(text) from error
        return answer.status, document if isinstance(document, dict) else {}

    async def close(self) -> None:
        await self._http.close()
