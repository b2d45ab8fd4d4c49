"""Asks sidecars whether they have an owner, and to end: only they know whether a claim is in progress."""

from __future__ import annotations

from typing import Any

import aiohttp
from sandlot_contract.phases import Phase
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.verdicts import SandboxVerdict


class SidecarUnreachable(Exception):
    """The sidecar gave no response, or an unexpected one."""


class Sidecars:
    """Client of all sidecars; `close` it at the end."""

    def __init__(self, *, port: int = SIDECAR_PORT, timeout: float = 5.0) -> None:
        self._port = port
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def end_if_unclaimed(self, address: str, *, token: str) -> bool:
        """End a sidecar unless it is claimed; return whether it ended. Raises SidecarUnreachable."""
        body = {
            "verdict": SandboxVerdict.DELETED,
            "message": "the controller retired this instance",
            "only_unclaimed": True,
        }
        status, _ = await self._ask("POST", address, "/v1/end", token=token, body=body, accept=(200, 409))
        return status == 200

    async def end(self, address: str, *, token: str, verdict: str, message: str) -> None:
        """End a sidecar, claimed or not. Raises SidecarUnreachable."""
        body = {"verdict": verdict, "message": message}
        await self._ask("POST", address, "/v1/end", token=token, body=body)

    async def is_claimed(self, address: str, *, token: str) -> bool:
        """Return whether a sidecar has an owner. Raises SidecarUnreachable."""
        _, document = await self._ask("GET", address, "/v1/state", token=token)
        return document.get("phase") == Phase.CLAIMED

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
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{self._port}{path}"
        try:
            async with self._session.request(
                method,
                url,
                json=body,
                headers={"Authorization": f"Bearer {token}"},
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status not in accept:
                    text = (await answer.content.read(200)).decode(errors="replace")
                    raise SidecarUnreachable(f"{url} responded with {answer.status}: {text}")
                document = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise SidecarUnreachable(f"{url}: {error or type(error).__name__}") from error
        return answer.status, document if isinstance(document, dict) else {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
