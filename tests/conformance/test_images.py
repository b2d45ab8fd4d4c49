"""What a sandbox shows of an image is what a container shows of it: files, user, environment, mounts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sandlot import BadRequest

from tests.conformance.building import build
from tests.conformance.catalogue import FOREIGN, RECIPES
from tests.conformance.conftest import NEEDS
from tests.conformance.containers import Containers
from tests.conformance.places import Place
from tests.conformance.sameness import assert_like, assert_same, of_container, process_and_files

pytestmark = NEEDS
BY_NAME = {recipe.name: recipe for recipe in RECIPES}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_sandbox_of_the_image_is_like_a_container_of_it(
    containers: Containers, place: Place, name: str
) -> None:
    archive = build(BY_NAME[name])
    expected = of_container(containers, archive)
    with place.open(archive) as box:
        assert_like(expected, box, place.meant)


def test_an_image_without_this_machine_s_platform_is_refused_with_those_that_it_has(place: Place) -> None:
    with (
        pytest.raises(BadRequest, match=r"no image for linux/\w+, only for linux/arm/v7, linux/s390x"),
        place.open(build(FOREIGN)),
    ):
        raise AssertionError("it has been opened")


def test_a_directory_with_the_layout_is_the_same_image_as_an_archive_of_it(
    place: Place, tmp_path: Path
) -> None:
    archive = build(BY_NAME["docker"])
    layout = tmp_path / "layout"
    layout.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", layout], check=True)
    with place.open(archive) as one, place.open(layout) as other:
        assert_same(process_and_files(one), process_and_files(other), place.meant)
