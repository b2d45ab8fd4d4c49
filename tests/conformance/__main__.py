"""Builds the images of the conformance tests, so that no test waits for packages: `python -m tests.conformance`."""

from __future__ import annotations

from tests.conformance.building import build
from tests.conformance.catalogue import FOREIGN, RECIPES

for recipe in (*RECIPES, FOREIGN):
    build(recipe)
