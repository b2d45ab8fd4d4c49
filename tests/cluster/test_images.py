"""The images' one list of contents: Dockerfiles, pinned lists and archives follow it."""

from __future__ import annotations

import json

import pytest

from images import dockerfiles, requirements
from images.__main__ import generate
from images.build import config
from images.contents import IMAGES, Image, by_name


def test_generated_files_are_up_to_date() -> None:
    assert generate(check=True) == 0


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_dockerfile_and_archive_start_alike(image: Image) -> None:
    lines = dockerfiles.render(image).splitlines()
    settings = config(image)
    entrypoint = [
        json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT ")
    ]
    assert entrypoint == ([list(image.entrypoint)] if image.entrypoint else [])
    assert settings.get("Entrypoint", []) == list(image.entrypoint)
    assert f"USER {settings['User']}" in lines
    assert settings["Env"] == [
        line.removeprefix("ENV ") for line in lines if line.startswith("ENV ") and "EPOCH" not in line
    ]


def test_gateway_and_controller_are_not_root() -> None:
    for name in ("gateway", "controller"):
        assert by_name(name).user == "65532:65532"


def test_every_pinned_entry_has_a_hash() -> None:
    for path, text in requirements.generated().items():
        for name, entries in requirements.blocks(text).items():
            assert all("--hash=sha256:" in entry for entry in entries), f"{path}: {name}"


def test_the_sidecar_has_its_one_dependency_and_no_other() -> None:
    assert set(requirements.blocks(requirements.of_image(by_name("sidecar")))) == {"httptools"}


def test_an_unknown_image_is_named_in_the_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        by_name("nonsense")
