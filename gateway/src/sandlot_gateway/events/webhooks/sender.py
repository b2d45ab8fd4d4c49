"""Sends a target its events in order of their groups, again until it takes them, and remembers where it was."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.metrics import WebhookOutcome

from ..cursor import Cursor, read_cursor
from ..event import Event
from ..journal import Journal
from ..tenant import OVERLAP, CursorExpired
from .post import NotSent, Poster
from .signing import signed
from .targets import BadTargets, Target

_log = logging.getLogger(__name__)

AT_ONCE = 8  # events of a target in flight
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two attempts
GIVE_UP = 900.0  # seconds after which an event is left out that its target rejects
_REJECTS_FOR_NOW = frozenset((408, 409, 425, 429))
_MOST = 500  # events that are looked at for one group


class Sender:
    """One target's. It has no queue: like a slow stream, it is further behind in the events that are kept."""

    def __init__(
        self,
        target: Target,
        *,
        journal: Journal,
        poster: Poster,
        place: Path,
        counted: Callable[[WebhookOutcome], None],
    ) -> None:
        """`place`: the file in which it remembers its cursor."""
        self._target = target
        self._journal = journal
        self._events = journal.of(target.tenant)
        self._poster = poster
        self._place = place
        self._counted = counted
        self._woken = asyncio.Event()
        self._remembered = time.monotonic()
        self._is_failing = False
        self._is_losing = False

    async def run(self) -> None:
        """Send until cancelled."""
        self._events.readers.add(self._woken)
        try:
            number = self._begin()
            while True:
                self._woken.clear()
                try:
                    number = await self._send_from(number)
                except Exception:  # else it would never send again
                    _log.exception("webhook %s failed in an unexpected way; trying again", self._target.name)
                    await asyncio.sleep(LONGEST_PAUSE)
                if number >= self._events.end:
                    await self._wait()
                # Also without an event that the target wants, so that its place stays one that is kept.
                if time.monotonic() >= self._remembered + LONGEST_PAUSE:
                    self._remember(self._events.cursor(number, now=self._journal.now()))
        finally:
            self._events.readers.discard(self._woken)

    async def _wait(self) -> None:
        """Wait for events, at most until the place is to be remembered."""
        left = max(self._remembered + LONGEST_PAUSE - time.monotonic(), 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._woken.wait()

    async def _send_from(self, number: int) -> int:
        """Send the next group of events, and return the number to go on with."""
        try:
            batch = self._events.read(number, wanted=self._target.wanted, most=_MOST, most_bytes=1 << 20)
        except CursorExpired:
            self._lose()
            return self._events.first
        group = batch.entries[:AT_ONCE]
        after = batch.next if len(group) == len(batch.entries) else group[-1][0] + 1
        if group:
            async with asyncio.TaskGroup() as sending:
                for _, entry in group:
                    sending.create_task(self._deliver(entry.event))
            self._remember(self._events.cursor(after, now=self._journal.now()))
        return after

    async def _deliver(self, event: Event) -> None:
        """Send one event until the target takes it, has rejected it for long, or is not owed it any more."""
        begun = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            why, rejects = await self._attempt(event)
            if why is None:
                self._counted("delivered")
                self._works()
                return
            self._fails(why)
            if event.document.id not in self._events:
                self._lose()
                return
            if rejects and time.monotonic() - begun > GIVE_UP:
                self._counted("rejected")
                _log.error("webhook %s rejects event %s: %s", self._target.name, event.document.id, why)
                return
            self._counted("retried")
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _attempt(self, event: Event) -> tuple[str | None, bool]:
        """Return why it failed, None if it did not, and whether the target rejects this event."""
        try:
            headers = signed(
                event.text,
                webhook_id=event.document.id,
                at=int(self._journal.now()),
                secrets=self._target.secrets(),
            )
            status = await self._poster.post(self._target, event.text, headers)
        except (NotSent, BadTargets) as error:
            return str(error), False
        if 200 <= status < 300:
            return None, False
        return f"it answered with status {status}", 300 <= status < 500 and status not in _REJECTS_FOR_NOW

    def _begin(self) -> int:
        """Return the number to begin with: by time where it was before a restart, else with the last minute."""
        try:
            since = read_cursor(self._place.read_text("ascii")).at - OVERLAP
        except FileNotFoundError:
            return self._events.number_at(self._journal.now() - OVERLAP)
        except (OSError, ValueError) as error:
            _log.error(
                "cannot read where webhook %s was: %s; it sends the last minute", self._target.name, error
            )
            return self._events.number_at(self._journal.now() - OVERLAP)
        if since <= self._events.dropped_until:
            self._lose()
        # Not from when on this gateway knows all: others send what only they knew meanwhile.
        return self._events.number_at(since)

    def _remember(self, cursor: Cursor) -> None:
        self._remembered = time.monotonic()
        try:
            write_atomic(self._place, str(cursor).encode())
        except OSError as error:
            _log.error(
                "cannot write where webhook %s is: %s; a restart repeats more", self._target.name, error
            )

    def _lose(self) -> None:
        self._counted("lost")
        if not self._is_losing:
            self._is_losing = True
            _log.error("webhook %s has missed events that are not kept any more", self._target.name)

    def _fails(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.error("webhook %s does not take events: %s; trying again", self._target.name, why)

    def _works(self) -> None:
        self._is_losing = False
        if self._is_failing:
            self._is_failing = False
            _log.warning("webhook %s takes events again", self._target.name)
