"""Sends webhooks: a signed POST over TCP or a Unix socket, retried with backoff until it is acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import time

from sandlot_contract.headers import GATEWAY_KEY, SIGNATURE, VERDICT_KEY
from sandlot_contract.phases import Event

from . import log
from .gateway import ATTEMPT_TIMEOUT, GatewayError
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .gateway import Gateway

FIRST_PAUSE, LAST_PAUSE = 0.05, 5.0
# Factor by which heartbeats slow down while nothing happens, since each wakes a sandbox that nobody uses.
SLOWEST_BEAT = 10
# Delay in seconds: with 20 claims at once, the webhooks would take CPU time from their first commands.
CLAIM_TOLD_AFTER = 0.5


def spread() -> float:
    """Return a random factor from 0.8 to 1.2."""
    return 0.8 + 0.4 * int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF


async def post(gateway: Gateway, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
    """Make one attempt; return the HTTP status and, for a 410, its verdict. Raises GatewayError.

    Another program may have the address of a Service that is gone, and its answer, whatever it is, must not count.
    """
    target = gateway.target
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.host}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    writer = None
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            reader, writer = await gateway.connect()
            writer.write("\r\n".join(lines).encode("latin-1") + body)
            words = (await reader.readline()).split()
            if len(words) < 2 or not words[1].isdigit():
                raise GatewayError("the response is not HTTP")
            status = int(words[1])
            answer = await _headers(reader)
            if answer.get(GATEWAY_KEY) != gateway.proof.encode():
                raise GatewayError(
                    f"the answer {status} is not a gateway's: another program has its address, or the master keys differ"
                )
            verdict = answer.get(VERDICT_KEY)
            return status, (verdict.decode("latin-1") if status == 410 and verdict is not None else None)
    except (OSError, TimeoutError, ValueError) as error:
        raise gateway.failure(error) from error
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
        gateway: Gateway | None,
        *,
        heartbeat: float,
        document: Callable[[], dict[str, Any]],
    ) -> None:
        self._gateway = gateway
        self._period = heartbeat
        self._document = document
        self._tasks = Tasks()
        self._ready: asyncio.Task[bool] | None = None
        self._beats: asyncio.Task[None] | None = None
        self._claim: asyncio.TimerHandle | None = None
        self.on_unwanted: Callable[[dict[str, Any], str | None], None] = lambda document, verdict: None
        self.sent = 0
        self.failed = 0

    def _spawn(self, event: str, *, until: float | None) -> asyncio.Task[bool]:
        return self._tasks.spawn(self._deliver(event, until=until))

    def prepare(self) -> asyncio.Task[None] | None:
        """Look up the gateway's address ahead of the first webhook; return None if there is nothing to look up."""
        if self._gateway is None or not self._gateway.must_look_up:
            return None
        return self._tasks.spawn(self._look_up_early(self._gateway))

    async def _look_up_early(self, gateway: Gateway) -> None:
        try:
            await gateway.look_up()
        except GatewayError:
            return  # the webhook itself retries, and logs the failure

    def ready(self) -> None:
        """Send `ready` until it is acknowledged."""
        if self._gateway is not None:
            if self._ready is not None:
                self._ready.cancel()
            self._ready = self._spawn(Event.READY, until=None)
        self._beat_anew()

    def claimed(self, *, after: float = 0.0) -> None:
        """Send `claimed` once, after so many seconds; the claiming gateway knows already."""
        if self._gateway is not None:
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
        if self._gateway is None:
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
        if self._period > 0 and self._gateway is not None:
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
        gateway = self._gateway
        if gateway is None:
            return 0, None
        body = json.dumps({"event": event, "sent_at": time.time(), **document}).encode()
        headers = {**gateway.identity, SIGNATURE: gateway.signature(body)}
        try:
            if gateway.must_look_up:
                await gateway.look_up()
            status, verdict = await post(gateway, body, headers)
        except GatewayError as error:
            gateway.unreachable()
            log.event("webhook_failed", webhook=event, error=str(error))
            return 0, None
        gateway.reached()
        return status, verdict
