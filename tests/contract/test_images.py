"""Which names of images a node may fetch, and from where."""

from __future__ import annotations

import pytest
from sandlot_contract.images import refusal, registry_of

from tests.gateway.test_registries import PRIVATE


@pytest.mark.parametrize(
    "image", [*PRIVATE, "[::1]/x", "[fc00::1]:5000/x", "u:p@8.8.8.8/x", "https://8.8.8.8/x"]
)
def test_what_is_private_or_no_name_is_refused(image: str) -> None:
    assert refusal(image, allowed=()) is not None


def test_a_name_without_a_registry_is_the_hubs() -> None:
    names = {"python": "docker.io", "a/b": "docker.io", "a.b/c": "a.b", "a:1/c": "a:1", "A.b/c": "a.b"}
    assert {name: registry_of(name) for name in names} == names


@pytest.mark.parametrize(
    ("image", "allowed", "is_allowed"),
    [
        ("python:3.12", ["docker.io"], True),
        ("python:3.12", ["*.example"], False),
        ("a.example/x", ["*.example"], True),
        ("example/x", ["*.example"], False),
        ("10.0.0.1:5000/x", ["10.0.0.1:5000"], True),
        ("10.0.0.1/x", ["10.0.0.1:5000"], False),
        ("Registry/x", ["registry"], True),
    ],
)
def test_a_list_is_the_only_one(image: str, allowed: list[str], is_allowed: bool) -> None:
    assert (refusal(image, allowed=allowed) is None) is is_allowed
