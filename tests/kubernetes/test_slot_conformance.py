"""What a sandbox in a slot pod shows of an image is what a container shows of it, under gVisor and under runc."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from sandlot import Client, SandlotError

from tests.cluster import cluster
from tests.conformance.building import build
from tests.conformance.catalogue import FOREIGN, RECIPES
from tests.conformance.containers import CannotOpen, containerd
from tests.conformance.meant import GVISOR, RUNC
from tests.conformance.places import Place, Sandboxes
from tests.conformance.sameness import Expected, assert_like, of_container, process_and_files
from tests.kubernetes.node_agents import leave_no_image
from tests.kubernetes.releases import release_of_its_own, with_slots

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
# What containerd's overlayfs does not unpack, or not as it was meant, for any pod: it puts each layer into a directory
# of its own, where links of the layers below are not followed.
BROKEN = {"links-across-layers": "failed to extract layer", "links": "no such user"}
# Minutes for nothing that fewer files do not show; SANDLOT_TEST_LONG=1 runs them. Under runc they are quick.
LONG_UNDER_GVISOR = {"files-20000"}
POOL = {
    "size": 2,
    "template": {"cpu": 1, "memory": 512 << 20, "disk": 1 << 30},
    "reuse": {"policy": "tenant"},
}


@pytest.fixture(scope="module")
def expected() -> Iterator[Callable[[str], Expected | None]]:
    """What a container of a node shows of the image of this name, None: none can be made.

    Opened once for both runtimes.
    """
    with containerd(snapshotter="overlayfs") as containers:

        @cache
        def shown(name: str) -> Expected | None:
            try:
                return of_container(containers, build(BY_NAME[name]))
            except CannotOpen:
                return None

        yield shown


@pytest.fixture(scope="module", params=["gvisor", "runc"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with release_of_its_own("conformance", runtime=request.param) as stack:
        stack.install(*with_slots(POOL))
        with Client(url=stack.url, api_key=stack.api_key) as client:
            yield Sandboxes(
                client,
                meant=GVISOR if request.param == "gvisor" else RUNC,
                name_of=cluster.push_image,
                cpu=1,
                disk=1 << 30,
                wait=240,
            )
        leave_no_image(stack)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_sandbox_of_the_image_is_like_a_container_of_it(
    place: Place, expected: Callable[[str], Expected | None], name: str
) -> None:
    if place.meant is GVISOR and name in LONG_UNDER_GVISOR and not os.environ.get("SANDLOT_TEST_LONG"):
        pytest.skip("takes minutes under gVisor: set SANDLOT_TEST_LONG=1")
    container, archive = expected(name), build(BY_NAME[name])
    assert (container is None) == (name in BROKEN)
    if container is None:
        with pytest.raises(SandlotError, match=BROKEN[name]), place.open(archive) as box:
            process_and_files(box)
    else:
        with place.open(archive) as box:
            assert_like(container, box, place.meant)


def test_an_image_without_the_nodes_platform_is_refused(place: Place) -> None:
    with pytest.raises(SandlotError, match="platform"), place.open(build(FOREIGN)):
        raise AssertionError("it has been opened")
