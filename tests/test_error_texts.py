"""docs/errors.md: how texts are found in the source, and that texts of every surface are on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools import tool

ROOT = Path(__file__).resolve().parents[1]
texts = tool("error_texts")
ERROR = """
class Refused(Exception): ...

def refused(text: str) -> Refused: ...
"""


@pytest.mark.parametrize(
    ("source", "text", "kind", "answer"),
    [
        ('raise Refused(409, "in_use", "the name is in use")', "the name is in use", "Refused", "409 in_use"),
        ('raise Refused(409, ErrorCode.IN_USE, "it is in use")', "it is in use", "Refused", "409 in_use"),
        ('answer = refused("it is full")', "it is full", "refused", ""),
        ('raise Refused(f"no pool {name!r}")', "no pool {name}", "Refused", ""),
        ('raise Refused(f"no pool {a + b}"[:200])', "no pool {…}", "Refused", ""),
        ('WHY = "it is full"\nraise Refused(WHY)', "it is full", "Refused", ""),
        ('WHY = {"a": "it has {n}"}\nraise Refused(413, WHY[b].format(n=n))', "it has {n}", "Refused", "413"),
        ('def f():\n    why = "it is full"\n    raise Refused(409, why)', "it is full", "Refused", "409"),
        ('raise Refused("it is full" if full else None)', "it is full", "Refused", ""),
        ('raise Refused("it is full: " + why)', "it is full: {…}", "Refused", ""),
        ('SAID = {410: "the sandbox has ended"}', "the sandbox has ended", "answer", "410"),
        ('send({"error": "full", "message": "it is full"})', "it is full", "answer", ""),
        ('print("sandlot: it is full", file=sys.stderr)', "sandlot: it is full", "standard error", ""),
    ],
)
def test_a_text_is_found(source: str, text: str, kind: str, answer: str) -> None:
    assert texts.collect({"here": ERROR + source}) == [texts.Found("here", text, kind, answer)]


@pytest.mark.parametrize(
    "source",
    [
        '_log.error("it is full")',
        'raise Refused("in_use")',
        'raise Refused(f"{field}: {error}")',
        'print("it is full")',
    ],
)
def test_what_is_no_error_text_is_left_out(source: str) -> None:
    assert texts.collect({"here": ERROR + source}) == []


def test_a_constant_of_another_module_is_followed() -> None:
    sources = {"a": 'REJECTED = "the token is wrong"', "b": f"{ERROR}raise Refused(502, REJECTED)"}
    assert texts.collect(sources) == [texts.Found("b", "the token is wrong", "Refused", "502")]


def test_every_surface_has_texts() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    assert len(sections) > 10
    assert [section.splitlines()[0] for section in sections if section.count("\n| `") < 3] == []
