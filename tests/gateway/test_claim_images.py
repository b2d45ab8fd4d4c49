"""The image of a claim: prepared while the create waits, named to the sidecar, and not taken for granted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import BackendError, NodeFailed, StillPreparing
from sandlot_gateway.core.claim_images import ClaimImage
from sandlot_gateway.core.instances import Instance, Laid
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.supply_events import StartFailed
from sandlot_gateway.engine.claim_failures import NoSidecar
from sandlot_gateway.engine.images import Patience

from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, new_sandbox
from tests.gateway.sidecars import sidecars

DOCUMENT = {"id": "sha256:abc", "lower": ["/images/abc/rootfs"], "env": {}, "workdir": "/", "user": "root"}
QUICK = Patience(failures=2, preparations=2, first_pause=0.0, longest_pause=0.0)


class Images:
    """A backend's images: `answer` is asked for each claim. `laid` has each change of an instance's image.

    `unlaid` has the instances whose claims did not lay it, with its id. `nodes` have the image; `progress` is how far
    its preparation is.
    """

    def __init__(
        self,
        answer: Callable[[Instance], Awaitable[dict[str, Any] | None]],
        *,
        ahead: Callable[[], Coroutine[Any, Any, object]] | None = None,
    ) -> None:
        self._answer = answer
        self._ahead = ahead
        self.command: tuple[str, ...] | None = ()
        self.stop_signal = ""
        self.asked: list[str] = []
        self.laid: list[tuple[str, Laid | None, Laid | None]] = []
        self.unlaid: list[tuple[str, str]] = []
        self.nodes: tuple[str, ...] = ()
        self.progress: str | None = None

    def image_ahead(self, image: str) -> Coroutine[Any, Any, object] | None:
        return self._ahead() if self._ahead is not None else None

    async def claim_image(
        self, image: str, *, tenant: str, instance: Instance, with_config: bool = False
    ) -> ClaimImage | None:
        assert tenant == "t"
        self.asked.append(instance.id)
        document = await self._answer(instance)
        if document is None:
            return None
        return ClaimImage(document, self.command if with_config else (), self.stop_signal)

    def image_laid(self, instance: Instance, *, before: Laid | None) -> None:
        self.laid.append((instance.id, before, instance.laid))

    def image_unlaid(self, instance: Instance, image_id: str) -> None:
        self.unlaid.append((instance.id, image_id))

    def image_progress(self, image: str, *, tenant: str) -> str | None:
        assert tenant == "t"
        return self.progress

    def nodes_with(self, image: str) -> tuple[str, ...]:
        return self.nodes


async def prepared(instance: Instance) -> dict[str, Any]:
    return DOCUMENT


async def missing(instance: Instance) -> dict[str, Any]:
    raise BackendError("no such image", error_type="IMAGE_PULL_FAILED")


async def own(instance: Instance) -> None:
    return None


async def test_the_sidecar_is_told_and_the_digest_is_kept(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(prepared)
        one = replica(sidecar, images=images)
        sandbox = new_sandbox()
        claimed = await one.claim(sandbox)
        assert sidecar.claim is not None
        assert sidecar.claim["image"] == DOCUMENT
        assert sandbox.image_digest == "sha256:abc"
        assert claimed.instance.image == sandbox.spec.image
        assert images.laid == [(sidecar.instance_id, None, Laid("sha256:abc", sandbox.spec.image))]


async def test_the_backend_is_told_which_image_another_one_replaces(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        ids = iter(("sha256:1", "sha256:2"))

        async def named(instance: Instance) -> dict[str, Any]:
            return {**DOCUMENT, "id": next(ids)}

        images = Images(named)
        one = replica(sidecar, images=images)
        await one.claim(new_sandbox(image="first"))
        sidecar._reset(keep=False)
        one.offer(sidecar)
        await one.claim(new_sandbox(image="second"))
        first, second = Laid("sha256:1", "first"), Laid("sha256:2", "second")
        assert images.laid == [(sidecar.instance_id, None, first), (sidecar.instance_id, first, second)]


async def test_an_older_sidecar_that_ignores_it_is_passed_over(replica, machine: Machine) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (older, good):
        older.lays_images = False
        one = replica(older, good, images=Images(prepared))
        sandbox = new_sandbox()
        await one.claim(sandbox)
        assert sandbox.instance_id == good.instance_id
        assert [gone.id for gone in one.discarded] == [older.instance_id]


async def test_one_without_a_place_for_images_is_passed_over(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        refusal = {"error": "bad_request", "message": "no root.images", "field": "image"}
        sidecar.before_claim = lambda claim: (400, refusal)
        one = replica(sidecar, images=Images(prepared), max_failures=1)
        with pytest.raises(NoSidecar, match=r"^its sidecar is older, and lays no images$"):
            await one.claim(new_sandbox())
        assert [gone.id for gone in one.discarded] == [sidecar.instance_id]


async def test_an_image_that_cannot_be_laid_fails_the_create_and_no_instance(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        refusal = {"error": "bad_request", "message": "not a directory", "field": "image.lower"}
        sidecar.before_claim = lambda claim: (400, refusal)
        one = replica(sidecar, images=Images(prepared))
        with pytest.raises(StartFailed, match="not a directory") as caught:
            await one.claim(new_sandbox())
        assert (caught.value.verdict, caught.value.error_type) == ("image_pull", "IMAGE_PULL_FAILED")
        assert one.discarded == []
        assert one.phase(sidecar) is Phase.WARM


async def test_an_image_whose_configuration_is_rejected_fails_the_create_at_once(
    replica, machine: Machine
) -> None:
    """Every other instance would reject it, too."""
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        refusal = {"error": "bad_request", "message": "no such user", "field": "image.user"}
        sidecar.before_claim = lambda claim: (400, refusal)
        one = replica(sidecar, images=Images(prepared))
        with pytest.raises(StartFailed, match="no such user"):
            await one.claim(new_sandbox())
        assert (sidecar.claims_seen, one.phase(sidecar)) == (1, Phase.WARM)


@pytest.mark.parametrize("ahead", [True, False])
async def test_an_image_that_cannot_be_prepared_fails_the_create(
    replica, machine: Machine, ahead: bool
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):

        async def fails() -> object:
            raise BackendError("no such image", error_type="IMAGE_PULL_FAILED")

        one = replica(sidecar, images=Images(missing, ahead=fails if ahead else None))
        with pytest.raises(StartFailed, match="no such image") as caught:
            await one.claim(new_sandbox())
        assert caught.value.verdict == "image_pull"
        assert one.phase(sidecar) is Phase.WARM
        assert sidecar.claims_seen == 0


async def test_a_create_that_leaves_meanwhile_gives_its_instance_back(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        begun = asyncio.Event()

        async def never(instance: Instance) -> dict[str, Any]:
            begun.set()
            await asyncio.Event().wait()
            return DOCUMENT

        one = replica(sidecar, images=Images(never))
        sandbox = new_sandbox()
        claim = asyncio.create_task(one.claim(sandbox))
        await begun.wait()
        assert one.phase(sidecar) is Phase.CLAIMING
        one.claimer.cancel(sandbox.id)
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert one.phase(sidecar) is Phase.WARM


async def test_a_claim_of_the_own_image_names_none(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        images = Images(own)
        one = replica(sidecar, images=images)
        sandbox = new_sandbox()
        await one.claim(sandbox)
        assert sidecar.claim is not None
        assert sidecar.claim["image"] is None
        assert (sandbox.image_digest, images.laid) == (None, [])


async def test_no_create_runs_in_an_image_that_a_failed_claim_has_left(replica, machine: Machine) -> None:
    """Its generation is still the same one, so that this gateway cannot know."""
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (changed, good):
        changed.left_image = "sha256:left"
        one = replica(changed, good, images=Images(own))
        sandbox = new_sandbox()
        await one.claim(sandbox)
        assert sandbox.instance_id == good.instance_id
        assert [gone.id for gone in one.discarded] == [changed.instance_id]


async def test_an_image_that_is_always_gone_again_fails_the_create(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):

        async def at_once() -> None:
            return

        async def again(instance: Instance) -> dict[str, Any]:
            raise StillPreparing(at_once)

        images = Images(again)
        one = replica(sidecar, images=images, patience=QUICK)
        with pytest.raises(StartFailed, match="was prepared 2 times"):
            await one.claim(new_sandbox())
        assert len(images.asked) == 3
        assert one.phase(sidecar) is Phase.WARM


async def test_a_node_that_fails_is_avoided(replica, machine: Machine) -> None:
    async with sidecars(3, Path(machine.directory), token=TOKENS.instance) as (bad, beside, good):

        async def only_on_b(instance: Instance) -> dict[str, Any]:
            if instance.node == "a":
                raise NodeFailed("no agent on node a", node="a")
            return DOCUMENT

        images = Images(only_on_b)
        one = replica(images=images, patience=QUICK)
        one.offer(bad, node="a")
        one.offer(beside, node="a")
        one.offer(good, node="b")
        sandbox = new_sandbox(image="another")
        await one.claim(sandbox)
        assert images.asked == [bad.instance_id, good.instance_id]
        assert one.phase(bad) is Phase.WARM


async def test_a_node_that_failed_is_avoided_also_after_another_instance_was_taken(
    replica, machine: Machine
) -> None:
    async with sidecars(4, Path(machine.directory), token=TOKENS.instance) as (bad, taken, beside, good):
        taken.before_claim = lambda claim: (409, {"error": "already_claimed"})

        async def not_on_a(instance: Instance) -> dict[str, Any]:
            if instance.node == "a":
                raise NodeFailed("no agent on node a", node="a")
            return DOCUMENT

        images = Images(not_on_a)
        one = replica(images=images, patience=QUICK)
        for slot, node in ((bad, "a"), (taken, "b"), (beside, "a"), (good, "c")):
            one.offer(slot, node=node)
        await one.claim(new_sandbox(image="another"))
        assert images.asked == [bad.instance_id, taken.instance_id, good.instance_id]


async def test_nodes_that_all_fail_end_the_create(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):

        async def never(instance: Instance) -> dict[str, Any]:
            raise NodeFailed("no agent on node a", node="a")

        images = Images(never)
        one = replica(images=images, patience=QUICK)
        one.offer(sidecar, node="a")
        with pytest.raises(StartFailed, match="no agent on node a") as caught:
            await one.claim(new_sandbox(image="another"))
        assert (caught.value.verdict, caught.value.error_type) == ("start_failed", "START_FAILED")
        assert len(images.asked) == 3
        assert one.phase(sidecar) is Phase.WARM
