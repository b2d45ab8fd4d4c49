"""Which bodies have too many entries to be parsed in the memory that all callers of a gateway share."""

from __future__ import annotations

import json

import pytest
from sandlot_gateway.fusion.entries import MOST, has_too_many

WIDE = "x" * (1 << 16)


@pytest.mark.parametrize(
    ("body", "too_many"),
    [
        ({"code": "1," * (2 * MOST)}, False),
        ({"code": '\\",' * (2 * MOST)}, False),
        ({"code": WIDE, "args": ["a,b"] * MOST}, False),
        ({"code": WIDE, "args": ["a"] * (MOST + 1)}, True),
        ({"code": WIDE, "cells": [[]] * (MOST + 1)}, True),
        ({"files": {f'"{number}\\': "," for number in range(MOST + 2)}}, True),
    ],
)
def test_entries_are_counted_outside_strings(body: object, too_many: bool) -> None:
    assert has_too_many(json.dumps(body).encode()) == too_many


def test_what_is_no_json_is_looked_at_quickly() -> None:
    assert not has_too_many(b'"' + b"\\" * (1 << 20))
    assert not has_too_many(b"[" * (1 << 20))
