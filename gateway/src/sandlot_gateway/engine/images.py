"""The image of a claim: prepared before its create's instance is asked, and checked in the sidecar's answer."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import BackendError, NodeFailed, StillPreparing
from sandlot_gateway.core.claim_images import ClaimImage, ClaimImages
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.sidecars import ClaimAnswer, ClaimOutcome
from sandlot_gateway.tracing.trace import stage

_log = logging.getLogger(__name__)

_VERDICT_OF_ERROR = {"IMAGE_PULL_FAILED": SandboxVerdict.IMAGE_PULL}


class NotHere(Exception):
    """The create has to give its instance back, and to ask for another after `Preparation.wait`.

    `awaits`: the image that the instance's node prepares; None: its node has failed, or there is only one.
    """

    def __init__(self, *, awaits: str | None) -> None:
        super().__init__()
        self.awaits = awaits


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a create tries again before it fails, and its pauses in seconds on a node that failed before."""

    failures: int = 5
    refusals: int = 3  # of instances that could not build a root over it
    preparations: int = 8  # of each node; after one, other creates may take its instances first
    first_pause: float = 1.0
    longest_pause: float = 8.0


@dataclass(slots=True)
class _Outage:
    """Failures of nodes that are expected to end."""

    since: float  # on the loop's clock
    failures: int = 0


class Preparation:
    """The preparations of one create's image. It begins at once where no node has to be known.

    `images`: None where instances keep their images. `with_config`: see `ClaimImages.claim_image`. `avoid` has the
    nodes that could not prepare it.
    """

    def __init__(
        self,
        images: ClaimImages | None,
        image: str,
        *,
        tenant: str,
        with_config: bool = False,
        patience: Patience | None = None,
    ) -> None:
        self._images = images
        self._image = image
        self._tenant = tenant
        self._with_config = with_config
        self._patience = patience or Patience()
        ahead = images.image_ahead(image) if images is not None else None
        self._ahead = asyncio.create_task(ahead) if ahead is not None else None
        if self._ahead is not None:
            # A create that leaves before it has a slot never asks for the result.
            self._ahead.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        self._running: asyncio.Task[Any] | None = None
        self._waits_for: StillPreparing | NodeFailed | None = None
        self._failures = 0
        self._outage: _Outage | None = None
        self._refusals = 0
        self._preparations: Counter[str | None] = Counter()  # by node
        self._node: str | None = None
        self._trouble: str | None = None  # the failure after which it pauses
        self.avoid: frozenset[str] = frozenset()

    @property
    def progress(self) -> str | None:
        """Return how far the preparation of the image is, or after which failure it pauses.

        None: the image is prepared, so that the create waits for an instance only.
        """
        if self._images is None or self._trouble is not None:
            return self._trouble
        if self._waits_for is None and self._images.nodes_with(self._image):
            return None  # although another node may be preparing it for a create that gave its instance back
        return self._images.image_progress(self._image, tenant=self._tenant)

    async def prepared(self, instance: Instance) -> ClaimImage | None:
        """Return the claim's image; None if the instance has it, or keeps its own.

        Raises NotHere, StartFailed, or CancelledError after `cancel`.
        """
        if self._images is None:
            return None
        try:
            if self._ahead is not None and self._ahead.done():
                self._ahead.result()
            with stage("sandlot.prepare_image"):
                return await self._run(
                    self._images.claim_image(
                        self._image, tenant=self._tenant, instance=instance, with_config=self._with_config
                    )
                )
        except (StillPreparing, NodeFailed) as error:
            self._waits_for, self._node = error, instance.node
            there = isinstance(error, StillPreparing) and instance.node is not None
            raise NotHere(awaits=self._image if there else None) from error
        except BackendError as error:
            raise start_failed(error) from error

    async def wait(self) -> None:
        """Wait until it is worth while to ask for another instance. Raises StartFailed, or CancelledError."""
        reason = self._waits_for
        try:
            if isinstance(reason, StillPreparing):
                self._preparations[self._node] += 1
                if self._preparations[self._node] > self._patience.preparations:
                    raise BackendError(
                        f"the image was prepared {self._patience.preparations} times, and each time no sandbox of "
                        "that node was free before the image had to go; give nodes more room for images"
                    )
                try:
                    await self._run(reason.finished())
                except NodeFailed as error:
                    reason = error
            if isinstance(reason, NodeFailed):
                await self._failed(reason)
        except BackendError as error:
            raise start_failed(error) from error
        finally:
            self._waits_for = self._trouble = None

    async def _failed(self, error: NodeFailed) -> None:
        """Note a node's failure, and wait if it failed before. Raises the error after too many, or too long."""
        if error.lasts:
            now = asyncio.get_running_loop().time()
            self._outage = self._outage or _Outage(now)
            if now - self._outage.since > error.lasts:
                raise error
            self._outage.failures += 1
            failures = self._outage.failures
        else:
            self._failures += 1
            failures = self._failures
            if failures > self._patience.failures:
                raise error
        _log.info("an image is tried on another node: %s", error)
        again = error.node in self.avoid
        self.avoid |= {error.node}
        if again:
            self._trouble = str(error)
            pause = min(self._patience.first_pause * 2 ** max(0, failures - 2), self._patience.longest_pause)
            await self._run(asyncio.sleep(pause))

    def refused(self, instance: Instance, error: StartFailed) -> None:
        """Note that this instance could not build a root over the image. Raises `error` after too many."""
        self._refusals += 1
        if self._refusals >= self._patience.refusals:
            raise error
        if instance.node is not None:
            self.avoid |= {instance.node}

    async def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        self._running = asyncio.create_task(work)
        try:
            return await self._running
        finally:
            self._running = None

    def cancel(self) -> None:
        for task in (self._ahead, self._running):
            if task is not None:
                task.cancel()


def start_failed(error: BackendError) -> StartFailed:
    """Return why a create fails for good."""
    verdict = _VERDICT_OF_ERROR.get(error.error_type, SandboxVerdict.START_FAILED)
    return StartFailed(str(error), verdict=verdict, error_type=error.error_type, field=error.field)


def judged(answer: ClaimAnswer, image: ClaimImage | None) -> ClaimAnswer:
    """Return GONE for an answer of a sidecar that has laid another image than the claim wants, or none.

    It is of an earlier version, or another claim of it failed after it had laid an image.
    """
    refused = answer.outcome == ClaimOutcome.REFUSED and answer.field == "image"
    claimed = answer.outcome == ClaimOutcome.CLAIMED
    another = claimed and image is not None and answer.state.get("image") != image.id
    if not (refused or another):
        return answer
    return replace(answer, outcome=ClaimOutcome.GONE, message="its sidecar is older, and lays no images")


def has_own(answer: ClaimAnswer) -> ClaimAnswer:
    """Return GONE for an answer to a claim without an image, of a sidecar that does not have its own."""
    if answer.outcome != ClaimOutcome.CLAIMED or not answer.state.get("image"):
        return answer
    return replace(answer, outcome=ClaimOutcome.GONE, message="a failed claim has laid another image in it")


def not_laid(answer: ClaimAnswer) -> StartFailed | None:
    """Return why a create fails whose image no sidecar can use, or None if the rejection is about another field."""
    if answer.outcome != ClaimOutcome.REFUSED or not (answer.field or "").startswith("image."):
        return None
    return StartFailed(answer.message, verdict=SandboxVerdict.IMAGE_PULL, error_type="IMAGE_PULL_FAILED")
