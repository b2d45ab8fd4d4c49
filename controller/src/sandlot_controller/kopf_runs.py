"""Runs kopf again when it has failed, and tells of the deletions that it missed."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec
from sandlot_kube import backoff
from sandlot_kube.access import Access
from sandlot_kube.errors import KubeError

from . import lifecycle
from .act.api import Api
from .act.ended_sandboxes import EndedSandboxes
from .act.warmups import WarmupLoop
from .kopf_watches import KopfWatches

_log = logging.getLogger(__name__)
_SHORTEST, _LONGEST = 0.2, 10.0  # seconds between two runs
_LOOKED_FOR = 5.0  # seconds between two looks for a definition that is not installed


class KopfGivenUp(Exception):
    """kopf has failed for so long that another replica is to try."""


async def run(
    ended: EndedSandboxes,
    warmups: WarmupLoop,
    watches: KopfWatches,
    *,
    api: Api,
    access: Access,
    patience: float,
) -> None:
    """Run until cancelled. Raises an ExceptionGroup with KopfGivenUp after `patience` seconds without success."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_again(ended, warmups, watches, api=api, access=access))
        group.create_task(_drop_unlisted(warmups, watches, api))
        await _failing_for(watches, patience)
        _log.error("cannot lead on: cannot read %s: %s", watches.path, watches.failure)
        raise KopfGivenUp(f"cannot read {watches.path}: {watches.failure}")


async def _failing_for(watches: KopfWatches, seconds: float) -> None:
    while True:
        if (left := seconds - watches.failing_for) <= 0:
            return
        await asyncio.sleep(left)  # a failure that begins meanwhile is due later than that


async def _again(
    ended: EndedSandboxes, warmups: WarmupLoop, watches: KopfWatches, *, api: Api, access: Access
) -> None:
    failures = 0
    while True:
        began = time.monotonic()
        try:
            await _run_once(ended, warmups, watches, api=api, access=access)
            watches.ended()
        except lifecycle.LifecycleFailed as error:
            watches.failed(str(error))
        # A failure that began in this run came after success.
        failures = 1 if watches.failing_for < time.monotonic() - began else failures + 1
        wait = backoff.pause(failures, shortest=_SHORTEST, longest=_LONGEST)
        _log.info("running kopf again in %.1f s", wait)
        await asyncio.sleep(wait)


async def _run_once(
    ended: EndedSandboxes, warmups: WarmupLoop, watches: KopfWatches, *, api: Api, access: Access
) -> None:
    """Run kopf until it lacks a resource that there is by now. Raises LifecycleFailed."""
    kopf = asyncio.create_task(
        lifecycle.run(ended, warmups, watches, access=access, namespace=api.namespace), name="one run of kopf"
    )
    defined = asyncio.create_task(_until_defined(watches, api), name="definitions")
    try:
        await asyncio.wait([kopf, defined], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in (kopf, defined):
            part.cancel()
        await asyncio.gather(kopf, defined, return_exceptions=True)
    for part in (kopf, defined):
        if not part.cancelled():
            part.result()


async def _until_defined(watches: KopfWatches, api: Api) -> None:
    """Return once the API server has a resource that kopf ignores: kopf looks for definitions only as it begins."""
    while True:
        await asyncio.sleep(_LOOKED_FOR)
        if not (ignored := watches.ignored):
            continue
        try:
            defined = await api.served(ignored)
        except (KubeError, msgspec.DecodeError) as error:
            _log.info("cannot look for the definitions of our resources, trying again: %s", error)
            continue
        if defined:
            return
        watches.undefined(ignored)


async def _drop_unlisted(warmups: WarmupLoop, watches: KopfWatches, api: Api) -> None:
    """After each list of kopf, tell of the warm-ups that were deleted before it: kopf tells only of those that exist."""
    failures = 0
    while True:
        await watches.listed.wait()
        watches.listed.clear()
        # Before the list: one that is created after it is not deleted.
        known = warmups.known()
        if not known:
            continue
        try:
            exist = await api.warmup_uids()
        except (KubeError, msgspec.DecodeError) as error:
            failures += 1
            _log.info("cannot list image warm-ups, trying again: %s", error)
            await asyncio.sleep(backoff.pause(failures, shortest=_SHORTEST, longest=_LONGEST))
            watches.listed.set()
            continue
        failures = 0
        for warmup in known:
            if warmup.metadata.uid not in exist:
                warmups.gone(warmup)
