"""Gateway and controller judge an image's registry alike, whoever made the resource."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway import registries as gateway
from sandlot_gateway.references import is_image_name
from sandlot_kube import registries as controller

from tests.gateway.test_registries import PRIVATE

HOSTS = st.sampled_from(
    ["10.0.0.1", "8.8.8.8", "a.example", "a.svc", "localhost", "Registry", "registry", "0x7f.1", "docker.io"]
)
IMAGES = st.builds(
    "{}{}/{}{}".format, HOSTS, st.sampled_from(["", ":5000"]), st.just("x"), st.sampled_from(["", ":1"])
)
ALLOWED = st.lists(st.sampled_from(["docker.io", "*.example", "10.0.0.1:5000", "Registry"]))


@given(IMAGES | st.text(max_size=20), ALLOWED)
def test_what_is_an_images_name_is_judged_alike(image: str, allowed: list[str]) -> None:
    assert controller.is_image_name(image) is is_image_name(image)
    if is_image_name(image):
        assert controller.refusal(image, allowed=allowed) == gateway.refusal(image, allowed=allowed)


@pytest.mark.parametrize(
    "image", [*PRIVATE, "[::1]/x", "[fc00::1]:5000/x", "u:p@8.8.8.8/x", "https://8.8.8.8/x"]
)
def test_what_is_private_or_no_name_is_refused(image: str) -> None:
    assert controller.refusal(image, allowed=()) is not None
