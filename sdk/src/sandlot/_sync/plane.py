# This file is auto-generated from sdk/src/sandlot/_async/plane.py by tools/async_to_sync.py: do not change it.
"""The data plane of one sandbox: its base URL and token, and calls that raise the matching exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sandlot._protocol import documents, tracing
from sandlot._protocol.answers import error_for
from sandlot._protocol.http1 import Origin, split_url
from sandlot._protocol.messages import Request, Response, TransportError, json_body, with_query
from sandlot._protocol.retry import Retry
from sandlot._sync.client import USER_AGENT, Client
from sandlot._tasks_sync import now
from sandlot._transport_sync.body import Body
from sandlot.errors import NotFound, OpExpired, SandboxLost, SandlotError, ServerError

KILL_SECONDS = 5.0
END_SECONDS = 30.0


class Plane:
    """Sends to `{gateway_url}/{user_ns}/{job_id}/…` with the sandbox's token, renewed once if it is rejected."""

    def __init__(self, *, client: Client, sandbox_id: str, auth: Mapping[str, Any] | None = None) -> None:
        self.client = client
        self.sandbox_id = sandbox_id
        self._origin: Origin | None = None
        self._prefix = ""
        self._headers: dict[str, str] = {}
        if auth:
            self._accept(auth)

    def _accept(self, auth: Mapping[str, Any]) -> None:
        try:
            origin, path = split_url(str(auth["gateway_url"]))
            token = str(auth["token"])
            prefix = f"{path}/{auth['user_ns']}/{auth['job_id']}"
        except (KeyError, ValueError) as error:
            raise ServerError(
                f"the server's gatewayAuth is incomplete ({error}); is the URL a Sandlot gateway's?"
            ) from error
        self._origin = origin
        self._prefix = prefix
        self._headers = {
            "Authorization": f"Bearer {token}",
            "User-Agent": USER_AGENT,
            "Content-Type": "application/json",
        }

    def _authorize(self) -> Origin:
        path = f"/sandbox/{self.sandbox_id}/auth"
        self._accept(self.client.call("POST", path, sandbox_id=self.sandbox_id))
        assert self._origin is not None
        return self._origin

    def send(
        self,
        method: str,
        route: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        safe: bool = True,
        timeout: float | None = 60.0,
        deadline: float | None = None,
        path: str | None = None,
        accept: tuple[int, ...] = (),
    ) -> Response:
        """Send a request and return its whole response. Raises for a status of 300 and above that is not in `accept`."""
        renewed = False
        while True:
            origin = self._origin or self._authorize()
            request = Request(
                method,
                origin,
                self._prefix + route,
                headers=self._with(headers),
                body=body,
                safe=safe,
                timeout=timeout,
            )
            response = self.client.send(request, deadline=deadline)
            if response.status < 300 or response.status in accept:
                return response
            if response.status == 401 and not renewed:
                renewed = True
                self._origin = None
                continue
            raise self._error(response.status, response.headers, response.body, path=path)

    def call(
        self,
        method: str,
        route: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object | None] | None = None,
        safe: bool = True,
        timeout: float | None = 60.0,
        path: str | None = None,
    ) -> documents.Document:
        """Send a JSON document and return the JSON response."""
        response = self.send(
            method,
            with_query(route, query or {}),
            body=b"" if body is None else json_body(body),
            safe=safe,
            timeout=timeout,
            path=path,
        )
        return documents.parse(response.body)

    def open(
        self,
        method: str,
        route: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        source: Callable[[], Iterable[bytes]] | None = None,
        length: int | None = None,
        safe: bool = True,
        timeout: float | None = 60.0,
        path: str | None = None,
        retry: Retry | None = None,
    ) -> Body:
        """Send a request and return its response body as a stream."""
        renewed = False
        while True:
            origin = self._origin or self._authorize()
            request = Request(
                method,
                origin,
                self._prefix + route,
                headers=self._with(headers),
                body=body,
                safe=safe,
                timeout=timeout,
            )
            answer = self.client.open(
                request, source=source, length=length, retry=retry, sandbox_id=self.sandbox_id, path=path
            )
            if answer.status < 300:
                return answer
            data = self.client.rest(answer)
            if answer.status == 401 and not renewed and (safe or source is None):
                renewed = True
                self._origin = None
                continue
            raise self._error(answer.status, answer.headers, data, path=path)

    def kill(self, op_id: str) -> None:
        """Kill an op whose caller has given up. Best effort within `KILL_SECONDS`; never raises."""
        if self._origin is None:
            return
        request = Request(
            "DELETE", self._origin, f"{self._prefix}/ops/{op_id}", headers=self._headers, timeout=KILL_SECONDS
        )
        try:
            self.client.transport.request(request)
        except TransportError:  # the sidecar ends an op by itself when its caller is gone
            return

    def end(self, op_id: str) -> None:
        """Kill a detached op, which nothing else ends. Raises ConnectionFailed after `END_SECONDS`."""
        try:
            self.send("DELETE", f"/ops/{op_id}", timeout=KILL_SECONDS, deadline=now() + END_SECONDS)
        except (NotFound, OpExpired, SandboxLost):
            return

    def _with(self, headers: Mapping[str, str] | None) -> Mapping[str, str]:
        context = tracing.headers()
        return {**self._headers, **(headers or {}), **context} if headers or context else self._headers

    def _error(
        self, status: int, headers: Mapping[str, str], body: bytes, *, path: str | None
    ) -> SandlotError:
        return error_for(status=status, headers=headers, body=body, sandbox_id=self.sandbox_id, path=path)
