"""A small client of one Kubernetes API server: single requests, and the lines of a watch."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from sandlot_kube.access import Access, from_environment
from sandlot_kube.answers import Page
from sandlot_kube.errors import KubeError, KubeUnreachable
from sandlot_kube.pages import Pages
from sandlot_kube.sockets import Sockets

MERGE_PATCH = "application/merge-patch+json"
_COMPARED = 10.0  # seconds between two comparisons of the clocks
_SAME = 2.5  # seconds by which clocks may differ and count as equal
_LONGEST_RETRY = 60.0  # seconds that a server may ask to wait
_LONGEST_LINE = 16 << 20  # bytes; the API server stores objects of at most about 3 MB


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


class KubeClient:
    """Client of one event loop; close it with `close`.

    Nothing is retried except a request rejected with 401 after the token's file has changed, which the server did not
    carry out. aiohttp itself repeats a GET, PUT or DELETE whose kept-alive connection was dead.
    """

    def __init__(
        self, access: Access, *, wall: Callable[[], float] = time.time, patience: float = 10.0
    ) -> None:
        """`wall`: this machine's clock, in Unix seconds. `patience`: seconds of a request that says no other time."""
        self.access = access
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()
        self._wall = wall
        self._patience = patience
        self._ahead = 0.0
        self._compare_at = 0.0  # on the monotonic clock

    @classmethod
    def from_environment(cls, context: str | None = None) -> KubeClient:
        """Return a client for the service account or the kubeconfig. Raises BadKubeConfig."""
        return cls(from_environment(context))

    @property
    def namespace(self) -> str:
        """Namespace of the service account or the context."""
        return self.access.namespace

    def now(self) -> float:
        """Return Unix seconds by the API server's clock, as are all times in resources: machines' clocks differ."""
        return self._wall() + self._ahead

    def local(self, seconds: float) -> float:
        """Convert Unix seconds by the API server's clock to this machine's clock."""
        return seconds - self._ahead

    async def close(self) -> None:
        if self._session is not None:
            await self._sockets.close(self._session)
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> bytes:
        """Return the body of a 2xx response. A `body` that is not bytes is encoded as JSON. Raises KubeError."""
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        limits = aiohttp.ClientTimeout(total=self._patience if timeout is None else timeout)
        async with self._answer(
            method, path, params=params, data=data, headers=headers, timeout=limits
        ) as answer:
            return await answer.read()

    def pages(
        self, path: str, *, limit: int, params: Mapping[str, str] | None = None, timeout: float = 10.0
    ) -> AsyncIterator[Page]:
        """Return a collection in pages of `limit` objects. `timeout`: seconds for each. They raise KubeError.

        Status 410 says that it took too long: the rest belongs to a list that the API server has forgotten.
        """
        return Pages(self, path, {**(params or {}), "limit": str(limit)}, timeout=timeout)

    async def lines(
        self, path: str, *, params: Mapping[str, str], idle: float, opened: Callable[[], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield a streamed response's lines; `opened` is called once it has begun. The caller must close it (`aclose`).

        Raises KubeUnreachable after `idle` seconds of silence or if the stream ends within a line.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=idle)
        async with self._answer("GET", path, params=params, data=None, headers={}, timeout=limits) as answer:
            opened()
            # Not the stream's own readline: it fails on lines over 128 KiB, and objects may be larger.
            rest = bytearray()
            looked = 0
            async for piece in answer.content.iter_any():
                rest += piece
                if len(rest) > _LONGEST_LINE:
                    raise KubeUnreachable(f"a line of {path} is longer than {_LONGEST_LINE} bytes")
                if (end := rest.rfind(b"\n", looked)) < 0:
                    looked = len(rest)
                    continue
                whole, looked = bytes(rest[:end]), 0
                del rest[: end + 1]
                for line in whole.split(b"\n"):
                    if line:
                        yield line
            if rest:
                raise KubeUnreachable(f"the stream of {path} ended within a line")

    async def stream_begins(self, path: str, *, params: Mapping[str, str], timeout: float = 10.0) -> None:
        """Return once a streamed response has begun, and end it. Raises KubeError."""
        limits = aiohttp.ClientTimeout(total=timeout)
        async with self._answer("GET", path, params=params, data=None, headers={}, timeout=limits):
            return

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a 2xx response; network errors in the block are raised as KubeUnreachable, too."""
        try:
            answer, token = await self._send(method, path, params, data, headers, timeout)
            if answer.status == 401 and token is not None and self.access.bearer() != token:
                answer.release()
                answer, _ = await self._send(method, path, params, data, headers, timeout)
            try:
                if not 200 <= answer.status < 300:
                    raise _refusal(answer, await answer.read())
                yield answer
            finally:
                # A stream left in the middle cannot be reused; a complete response was released already.
                answer.close()
        except KubeError:
            raise
        except TimeoutError as error:
            raise KubeUnreachable(f"{method} {path}: no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise KubeUnreachable(f"{method} {path}: {str(error) or type(error).__name__}") from error

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> tuple[aiohttp.ClientResponse, str | None]:
        if self._session is None:
            connector = aiohttp.TCPConnector(socket_factory=self._sockets.make)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True, trust_env=False)
        token = self.access.bearer()
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        options: dict[str, Any] = {} if self.access.ssl is None else {"ssl": self.access.ssl}
        if self.access.server_name is not None:
            options["server_hostname"] = self.access.server_name
        answer = await self._session.request(
            method,
            self.access.server + path,
            params=params,
            data=data,
            headers={"Accept": "application/json", **headers},
            timeout=timeout,
            allow_redirects=False,
            **options,
        )
        self._compare_clocks(answer.headers.get("Date"))
        return answer, token

    def _compare_clocks(self, date: str | None) -> None:
        """Compare clocks by a Date header, whose whole seconds and latency make up for a second or two."""
        if date is None or time.monotonic() < self._compare_at:
            return
        self._compare_at = time.monotonic() + _COMPARED
        try:
            ahead = parsedate_to_datetime(date).timestamp() + 0.5 - self._wall()
        except ValueError:
            return
        if abs(ahead - self._ahead) > _SAME:
            self._ahead = ahead if abs(ahead) > _SAME else 0.0


def _refusal(answer: aiohttp.ClientResponse, body: bytes) -> KubeError:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        status = _Status(message=body[:200].decode(errors="replace").strip())
    return KubeError(
        status=answer.status,
        reason=status.reason or (answer.reason or ""),
        message=status.message,
        retry_after=_retry_after(answer),
    )


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    try:
        seconds = float(answer.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
    # An hour would blind a watch as long, and infinity for ever. NaN is no number of seconds.
    return min(seconds, _LONGEST_RETRY) if seconds >= 0 else None
