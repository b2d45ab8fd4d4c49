"""The catalogue of images has each of SandboxFusion's languages once, and each that runs has programs."""

from __future__ import annotations

from sandlot_gateway.fusion_option import LANGUAGES

from tests.frameworks.fusion_programs import programs
from tests.toolchains.catalogue import ABSENT, IMAGES


def test_every_language_has_an_image_or_a_reason() -> None:
    there = [language for image in IMAGES for language in image.languages]
    assert sorted([*there, *ABSENT]) == sorted(LANGUAGES)
    assert sorted(there) == sorted(programs())
