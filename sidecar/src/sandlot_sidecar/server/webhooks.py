"""Sends webhooks: a signed POST over TCP or a Unix socket, retried with backoff until it is acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import time

from sandlot_contract.headers import GATEWAY_KEY, INSTANCE, SENDER, SIGNATURE, VERDICT_KEY
from sandlot_contract.phases import Event
from sandlot_contract.sidecar import WEBHOOK_ANSWER, WEBHOOK_SENDER, WEBHOOK_SIGNATURE

from ..core.errors import SidecarError
from . import hmac256, log, lookup, mark
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .tls import Tls

ATTEMPT_TIMEOUT = 5.0
FIRST_PAUSE, LAST_PAUSE = 0.05, 5.0
# Factor by which heartbeats slow down while nothing happens, since each wakes a sandbox that nobody uses.
SLOWEST_BEAT = 10
# Delay in seconds: with 20 claims at once, the webhooks would take CPU time from their first commands.
CLAIM_TOLD_AFTER = 0.5


class WebhookError(SidecarError):
    """One attempt failed."""


class Target:
    """Target of a webhook: `http://host:port/path`, `https://…` or `unix:/socket:/path`."""

    __slots__ = ("encrypted", "host", "path", "port", "socket")

    def __init__(self, url: str) -> None:
        self.socket: str | None = None
        self.host, self.port = "", 80
        self.encrypted = url.startswith("https://")
        if url.startswith("unix:"):
            self.socket, separator, path = url[5:].partition(":/")
            if not separator or not self.socket.startswith("/"):
                raise WebhookError("`webhook` must be unix:/socket:/path for a Unix socket")
            self.path = "/" + path
            self.host = "sandlot"
            return
        if not url.startswith(("http://", "https://")):
            raise WebhookError("`webhook` must be http://host:port/path, https://… or unix:/socket:/path")
        authority, _, path = url.partition("://")[2].partition("/")
        self.path = "/" + path
        host, separator, port = authority.rpartition(":")
        if separator and port.isdigit():
            self.host, self.port = host.strip("[]"), int(port)
        else:
            self.host = authority.strip("[]")


def spread() -> float:
    """Return a random factor from 0.8 to 1.2."""
    return 0.8 + 0.4 * int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF


async def _address(host: str) -> str:
    """Resolve a host within the timeout of one attempt. Raises WebhookError."""
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            return (await lookup.addresses(host))[0]
    except (OSError, TimeoutError, ValueError) as error:
        raise WebhookError(f"{type(error).__name__}: {error}") from error


async def post(
    target: Target,
    body: bytes,
    headers: dict[str, str],
    *,
    address: str | None,
    proof: str,
    tls: Tls | None = None,
) -> tuple[int, str | None]:
    """Make one attempt; return the HTTP status and, for a 410, its verdict. Raises WebhookError.

    `address`: the host's; None for a Unix socket. `proof`: what an answer has that is a gateway's. Another program may
    have the address of a Service that is gone, and its answer, whatever it is, must not count. `tls`: for an encrypted
    target.
    """
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.host}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    writer = None
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            if target.socket is not None:
                reader, writer = await asyncio.open_unix_connection(target.socket)
            elif tls is not None:
                reader, writer = await tls.open(await mark.connect(address or "", target.port))
            else:
                reader, writer = await asyncio.open_connection(
                    sock=await mark.connect(address or "", target.port)
                )
            writer.write("\r\n".join(lines).encode("latin-1") + body)
            words = (await reader.readline()).split()
            if len(words) < 2 or not words[1].isdigit():
                raise WebhookError("the response is not HTTP")
            status = int(words[1])
            answer = await _headers(reader)
            if answer.get(GATEWAY_KEY) != proof.encode():
                raise WebhookError(
                    f"the answer {status} is not a gateway's: another program has its address, or the master keys differ"
                )
            verdict = answer.get(VERDICT_KEY)
            return status, (verdict.decode("latin-1") if status == 410 and verdict is not None else None)
    except (OSError, TimeoutError, ValueError) as error:
        reason = None if tls is None else tls.reason_of(error)
        raise WebhookError(reason or f"{type(error).__name__}: {error}") from error
    finally:
        if writer is not None:
            writer.transport.abort()


async def _headers(reader: asyncio.StreamReader) -> dict[bytes, bytes]:
    """Return those headers that a webhook's answer may have."""
    found: dict[bytes, bytes] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if (name := name.lower()) in (GATEWAY_KEY, VERDICT_KEY):
            found[name] = value.strip()
    return found


class Webhooks:
    """Notifies the gateway. `document` returns the state document at the time of sending."""

    def __init__(
        self,
        *,
        url: str | None,
        instance_id: str,
        token: str,
        heartbeat: float,
        document: Callable[[], dict[str, Any]],
        address: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        """`address`: of the URL's host, as far as it is known; the name is looked up only if this fails."""
        self._target = Target(url) if url else None
        self._tls = tls if self._target is not None and self._target.encrypted else None
        if self._target is not None and self._target.encrypted and tls is None:
            raise WebhookError("`webhook` is https://…, and there is no `tls`: set both, or neither")
        self._instance_id = instance_id
        self._token = token.encode()
        self._sender = hmac256.hexdigest(self._token, WEBHOOK_SENDER)
        self._proof = hmac256.hexdigest(self._token, WEBHOOK_ANSWER)
        self._period = heartbeat
        self._document = document
        self._tasks = Tasks()
        self._ready: asyncio.Task[bool] | None = None
        self._address = address  # cached, since a lookup costs more than the webhook
        self._moved = address is None  # look up again before the next attempt
        self._beats: asyncio.Task[None] | None = None
        self._claim: asyncio.TimerHandle | None = None
        self.on_unwanted: Callable[[dict[str, Any], str | None], None] = lambda document, verdict: None
        self.sent = 0
        self.failed = 0

    def _spawn(self, event: str, *, until: float | None) -> asyncio.Task[bool]:
        return self._tasks.spawn(self._deliver(event, until=until))

    def prepare(self) -> asyncio.Task[None] | None:
        """Look up the gateway's address ahead of the first webhook; return None if there is nothing to look up."""
        if self._target is None or self._target.socket is not None or not self._moved:
            return None
        return self._tasks.spawn(self._look_up_early(self._target.host))

    async def _look_up_early(self, host: str) -> None:
        try:
            await self._look_up(host)
        except WebhookError:
            return  # the webhook itself retries, and logs the failure

    async def _look_up(self, host: str) -> None:
        """Look up the address; on failure (a policy may block lookups) keep the last one, or raise WebhookError."""
        try:
            self._address = await _address(host)
            self._moved = False
        except WebhookError:
            if self._address is None:
                raise

    def ready(self) -> None:
        """Send `ready` until it is acknowledged."""
        if self._target is not None:
            if self._ready is not None:
                self._ready.cancel()
            self._ready = self._spawn(Event.READY, until=None)
        self._beat_anew()

    def claimed(self, *, after: float = 0.0) -> None:
        """Send `claimed` once, after so many seconds; the claiming gateway knows already."""
        if self._target is not None:
            self._forget_claim()
            self._claim = asyncio.get_running_loop().call_later(after * spread(), self._tell_claim)
        self._beat_anew()

    def _tell_claim(self) -> None:
        self._claim = None
        self._spawn(Event.CLAIMED, until=0.0)

    def _forget_claim(self) -> None:
        if self._claim is not None:
            self._claim.cancel()
            self._claim = None

    async def ended(self, *, patience: float) -> bool:
        """Send `ended` until it is acknowledged, for at most `patience` seconds; return whether it was."""
        self.stop()
        if self._target is None:
            return True
        return await self._spawn(Event.ENDED, until=patience)

    def stop(self) -> None:
        """Stop heartbeats, the retries of `ready` and a `claimed` that is due."""
        self._forget_claim()
        self._stop_beating()
        if self._ready is not None:
            self._ready.cancel()
            self._ready = None

    async def close(self) -> None:
        """Cancel everything in progress."""
        self.stop()
        self._tasks.cancel()
        await self._tasks.wait()

    def _beat_anew(self) -> None:
        """Restart heartbeats at their shortest interval after a change, for gateways that missed the webhook."""
        self._stop_beating()
        if self._period > 0 and self._target is not None:
            self._beats = self._tasks.spawn(self._beat())

    def _stop_beating(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
            self._beats = None

    async def _beat(self) -> None:
        pause = self._period
        while True:
            await asyncio.sleep(pause * spread())
            heard = await self._deliver(Event.HEARTBEAT, until=0.0)
            pause = min(2 * pause, SLOWEST_BEAT * self._period) if heard else self._period

    async def _deliver(self, event: str, *, until: float | None) -> bool:
        """Attempt with backoff for `until` seconds (None: forever); return whether it was acknowledged."""
        begun = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            document = self._document()
            status, verdict = await self._attempt(event, document)
            if 200 <= status < 300:
                self.sent += 1
                return True
            if status == 410:
                if event != Event.ENDED:
                    self.on_unwanted(document, verdict)
                return True
            self.failed += 1
            wait = pause * spread()
            if until is not None and time.monotonic() - begun + wait > until:
                return False
            await asyncio.sleep(wait)
            pause = min(2 * pause, LAST_PAUSE)

    async def _attempt(self, event: str, document: dict[str, Any]) -> tuple[int, str | None]:
        target = self._target
        if target is None:
            return 0, None
        body = json.dumps({"event": event, "sent_at": time.time(), **document}).encode()
        headers = {
            INSTANCE: self._instance_id,
            SENDER: self._sender,
            SIGNATURE: WEBHOOK_SIGNATURE + hmac256.hexdigest(self._token, body),
        }
        try:
            if target.socket is None and self._moved:
                await self._look_up(target.host)
            status, verdict = await post(
                target, body, headers, address=self._address, proof=self._proof, tls=self._tls
            )
        except WebhookError as error:
            self._moved = True  # a Service that was created anew has another address
            log.event("webhook_failed", webhook=event, error=str(error))
            return 0, None
        self._moved = False  # a lookup takes seconds where a policy drops it
        return status, verdict
