"""Asks a sidecar to end, if nobody has claimed it: nobody else knows whether a claim is under way."""

from __future__ import annotations

import aiohttp
from sandlot_kube.names import SIDECAR_PORT


class SidecarUnreachable(Exception):
    """No answer, or none that tells whether it is claimed."""


class Sidecars:
    """One session for all; closed with `close`."""

    def __init__(self, *, port: int = SIDECAR_PORT, timeout: float = 5.0) -> None:
        self._port = port
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def end_if_unclaimed(self, address: str, *, token: str) -> bool:
        """True: it has ended and will accept no claim any more. False: it is claimed. Raises SidecarUnreachable."""
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{self._port}/v1/end"
        body = {"verdict": "deleted", "message": "no longer wanted", "only_unclaimed": True}
        try:
            async with self._session.post(
                url,
                json=body,
                headers={"Authorization": f"Bearer {token}"},
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status == 409:
                    return False
                if answer.status == 200:
                    return True
                text = (await answer.content.read(200)).decode(errors="replace")
                raise SidecarUnreachable(f"{url} answered {answer.status}: {text}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise SidecarUnreachable(f"{url}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
