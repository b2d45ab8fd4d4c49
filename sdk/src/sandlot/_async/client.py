"""The connection to one server: sends requests, retries what is safe to retry, turns errors into exceptions."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from types import TracebackType
from typing import Any

from sandlot import _version
from sandlot._protocol import documents, tracing
from sandlot._protocol.answers import error_code, error_for, retry_after
from sandlot._protocol.messages import Request, Response, TransportError, json_body, with_query
from sandlot._protocol.retry import Failure, Retry, retryable_status
from sandlot._tasks_async import Lock, close_at_end, now, run_blocking, scope, sleep
from sandlot._transport_async.body import AsyncBody
from sandlot._transport_async.transport import AsyncTransport
from sandlot.config import find_endpoint
from sandlot.endpoint import Endpoint
from sandlot.errors import ConnectionFailed

USER_AGENT = f"sandlot/{_version.__version__}"
BUSY_FOR = 600.0  # seconds that a busy server is asked again
LONG_ATTEMPT = 5.0  # seconds; a connection that lasted this long worked, unless we timed out
CLEANUP = 5.0  # seconds; cleanup for a cancelled caller delays its return
REFUSAL_SILENCE = 30.0  # seconds without a byte before the rest of an error body is skipped


class AsyncClient:
    """A client of one server, with its connections.

    Without arguments it uses SANDLOT_URL and SANDLOT_API_KEY, and with neither set a private local stack.
    `retry_for` is how many seconds a lost connection is retried before `ConnectionFailed` is raised.
    """

    def __init__(
        self, *, url: str | None = None, api_key: str | None = None, retry_for: float = 60.0
    ) -> None:
        self.transport = AsyncTransport()
        self.retry_for = retry_for
        self.busy_for = BUSY_FOR
        self._url = url
        self._api_key = api_key
        self._endpoint: Endpoint | None = None
        self._lock = Lock()
        self._answered = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; calls in flight fail."""
        await self.transport.aclose()

    async def endpoint(self) -> Endpoint:
        """Return the server; the first call may start a local stack. Raises ConfigError."""
        if self._endpoint is None:
            async with self._lock:
                if self._endpoint is None:
                    self._endpoint = await run_blocking(
                        lambda: find_endpoint(url=self._url, api_key=self._api_key)
                    )
        return self._endpoint

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object | None] | None = None,
        safe: bool = True,
        timeout: float | None = 60.0,
        patience: float | None = None,
        sandbox_id: str = "",
    ) -> documents.Document:
        """Call the control API and return its JSON object. Raises the matching SandlotError.

        `patience` is how many seconds the call is retried; with it, a busy server is not retried.
        """
        end = await self.endpoint()
        headers = {
            "Authorization": f"Bearer {end.api_key}",
            "User-Agent": USER_AGENT,
            **tracing.headers(),
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = with_query(f"{end.prefix}/api/v1{path}", query or {})
        data = b"" if body is None else json_body(body)
        response = await self.send(
            Request(method, end.origin, target, headers=headers, body=data, safe=safe, timeout=timeout),
            deadline=None if patience is None else now() + patience,
            busy=patience is None,
        )
        if response.status >= 300:
            raise error_for(
                status=response.status, headers=response.headers, body=response.body, sandbox_id=sandbox_id
            )
        return documents.parse(response.body)

    async def send(self, request: Request, *, deadline: float | None = None, busy: bool = True) -> Response:
        """Send with retries and return the response, whatever its status. Raises ConnectionFailed.

        `busy` is whether to retry a busy server.
        """
        retry: Retry | None = None
        while True:
            response = None
            begun = now()
            try:
                response = await self.transport.request(request)
            except TransportError as error:
                cause = error
                failure = Failure(sent=error.sent)
            else:
                self._answered = True
                if response.status < 429:
                    return response
                code = error_code(response.body)
                if not retryable_status(response.status, code=code):
                    return response
                cause = None
                failure = Failure(
                    sent=True, status=response.status, code=code, retry_after=retry_after(response.headers)
                )
            retry = retry or self.retry(safe=request.safe, deadline=deadline)
            delay = (
                None if failure.busy and not busy else self._delay(retry, failure, begun=begun, error=cause)
            )
            if delay is None:
                if response is not None:
                    return response
                raise ConnectionFailed(str(cause), sent=failure.sent) from cause
            await sleep(delay)

    async def open(
        self,
        request: Request,
        *,
        source: Callable[[], AsyncIterable[bytes]] | None = None,
        length: int | None = None,
        retry: Retry | None = None,
        sandbox_id: str = "",
        path: str | None = None,
    ) -> AsyncBody:
        """Send with the retries of `send` and return the response as a stream; a status of 429 and above raises.

        `source` makes a new request body for each attempt; an unsafe request is not retried once it was sent.
        """
        retry = retry or self.retry(safe=request.safe)
        # An unsafe request's source can be read once: a retry, also at a busy server, would send only the rest.
        repeatable = request.safe or source is None
        while True:
            begun = now()
            try:
                body = await self.transport.open(request, source=source, length=length)
            except TransportError as error:
                cause: TransportError | None = error
                failure = Failure(sent=error.sent)
            else:
                self._answered = True
                if body.status < 429:
                    return body
                data = await self.rest(body)
                code = error_code(data)
                failure = Failure(
                    sent=True, status=body.status, code=code, retry_after=retry_after(body.headers)
                )
                cause = None
                delay = None
                if repeatable and retryable_status(body.status, code=code):
                    delay = self._delay(retry, failure, begun=begun, error=None)
                if delay is None:
                    raise error_for(
                        status=body.status,
                        headers=body.headers,
                        body=data,
                        sandbox_id=sandbox_id,
                        path=path,
                    )
                await sleep(delay)
                continue
            delay = self._delay(retry, failure, begun=begun, error=cause)
            if delay is None:
                raise ConnectionFailed(str(cause), sent=failure.sent) from cause
            await sleep(delay)

    async def rest(self, refusal: AsyncBody) -> bytes:
        """Return the body of an error response, or b"" if it breaks off: its status is reported all the same."""
        try:
            return await refusal.read_all(timeout=REFUSAL_SILENCE)
        except TransportError:
            return b""
        finally:
            await refusal.aclose()

    def retry(self, *, safe: bool, deadline: float | None = None) -> Retry:
        """Return new retry state with this client's retry window."""
        return Retry(safe=safe, window=self.retry_for, busy_window=self.busy_for, deadline=deadline)

    def _delay(
        self, retry: Retry, failure: Failure, *, begun: float, error: TransportError | None
    ) -> float | None:
        if error is not None and error.final:
            return None
        # Attempts at a silent or unreachable server would each restart the window, and never end.
        silent = error is not None and (error.timed_out or not error.sent)
        if now() - begun > LONG_ATTEMPT and not silent:
            retry.progress()
        return retry.after(failure, now=now(), stranger=not self._answered)


async def default_client(*, url: str | None = None, api_key: str | None = None) -> AsyncClient:
    """Return the shared client for these arguments; it is closed when the event loop shuts down."""
    clients = scope()
    key = ("client", url, api_key)
    client = clients.get(key)
    if client is None:
        client = clients[key] = AsyncClient(url=url, api_key=api_key)
        await close_at_end(client.aclose)
    return client
