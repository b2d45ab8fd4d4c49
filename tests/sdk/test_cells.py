"""Answers of a Python context: any split gives the same results, and bytes that are none end the context."""

from __future__ import annotations

import ast
import json
import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot._async.contexts import driver
from sandlot._protocol import cells
from sandlot._protocol.cells import CellProtocolError, Cells
from sandlot._protocol.json_size import outside_strings
from sandlot.cells import RichOutput
from sandlot_contract import python_driver

texts = st.text(max_size=20)
outputs = st.one_of(
    st.builds(lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["stdout", "stderr"]), texts),
    st.builds(
        lambda kind, text: {"type": kind, "data": {"text/plain": text}, "metadata": {}},
        st.sampled_from(["display", "result"]),
        texts,
    ),
)
json_values: st.SearchStrategy[Any] = st.sampled_from(
    [
        "c",
        "ok",
        "refused",
        "died",
        "",
        None,
        True,
        7,
        0.5,
        10**400,
        math.inf,
        math.nan,
        [],
        ["x"],
        {},
        {"text/plain": "x", "a": [1]},
    ]
)
FIELDS = [
    "id",
    "text",
    "data",
    "metadata",
    "status",
    "error",
    "message",
    "execution_count",
    "python",
    "seconds",
]
KINDS = ["ready", "begin", "stdout", "display", "result", "done", "lost", "other"]


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(python_driver.encode(message) for message in messages)


def done(**fields: Any) -> dict[str, Any]:
    return {"type": "done", "id": "c", "status": "ok", "message": "", **fields}


@settings(max_examples=40)
@given(written=st.lists(outputs, max_size=10), cuts=st.lists(st.integers(0, 2000), max_size=10))
def test_every_split_gives_the_same_result(written: list[dict[str, Any]], cuts: list[int]) -> None:
    data = lines(
        {"type": "ready", "id": None, "python": "3.11.2"},
        {"type": "begin", "id": "c", "execution_count": 1},
        *({**message, "id": "c"} for message in written),
        done(seconds=0.5),
    )
    found = Cells()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [piece for begin, end in pairwise(edges) for piece in found.feed(data[begin:end])]
    result = found.results["c"]
    assert result.ok
    assert result.stdout == "".join(item["text"] for item in written if item["type"] == "stdout")
    assert [piece.kind for piece in pieces] == [item["type"] for item in written]
    assert list(result.outputs) == [piece.output for piece in pieces if isinstance(piece.output, RichOutput)]
    assert found.running is None


@settings(max_examples=40)
@given(
    messages=st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(KINDS)}, optional=dict.fromkeys(FIELDS, json_values)),
        max_size=6,
    ),
    garbage=st.binary(max_size=40),
)
def test_anything_else_is_a_protocol_error(messages: list[dict[str, Any]], garbage: bytes) -> None:
    """Code can write all of this: the library raises nothing else, and makes no result with wrong types."""
    found = Cells()
    try:
        found.feed(b"".join(json.dumps(message).encode() + b"\n" for message in messages) + garbage + b"\n")
    except CellProtocolError:
        pass
    for result in found.results.values():
        assert isinstance(result.stdout, str)
        assert isinstance(result.message, str)
        assert 0 <= result.seconds <= cells.MAX_SECONDS


@pytest.mark.parametrize("line", [b"[" * 100_000, b"1", b"\xff", b"{", b'{"type":"done","id":1}'])
def test_a_line_that_is_no_message(line: bytes) -> None:
    with pytest.raises(CellProtocolError):
        Cells().feed(line + b"\n")


def test_a_line_without_an_end_is_not_kept() -> None:
    found = Cells()
    found.feed(bytes(cells.MAX_LINE))
    with pytest.raises(CellProtocolError, match="a message of over"):
        found.feed(b"x")


def test_output_beyond_the_limit_is_dropped_here_too() -> None:
    """The program bounds it; code that writes in its place does not."""
    found = Cells()
    found.limits["c"] = 200
    found.feed(lines({"type": "begin", "id": "c", "execution_count": 1}))
    for _ in range(10):
        found.feed(lines({"type": "stdout", "id": "c", "text": "x" * 50}))
    found.feed(lines({"type": "stdout", "id": "another", "text": "y"}, done()))
    result = found.results["c"]
    assert (result.truncated, result.stdout) == (True, "x" * 100)


@pytest.mark.parametrize("seconds", [pytest.param(10**400, id="huge"), -1, math.inf, math.nan, "1", None])
def test_seconds_that_are_none(seconds: object) -> None:
    found = Cells()
    found.feed(json.dumps(done(seconds=seconds)).encode() + b"\n")
    assert found.results["c"].seconds == 0


@pytest.mark.parametrize(("pieces", "kept"), [(1, 0), (3, 1)])
def test_displayed_json_is_bounded_before_it_takes_fifty_times_its_size(pieces: int, kept: int) -> None:
    """Images and texts are strings, which may be longer."""
    found = Cells()
    image = {"type": "display", "id": "c", "data": {"image/png": '\\"' * 600_000}, "metadata": {}}
    many = {"type": "display", "id": "c", "data": {"a/json": [[]] * (600_000 // pieces)}, "metadata": {}}
    shown = found.feed(
        lines({"type": "begin", "id": "c", "execution_count": 1}, image, *[many] * pieces, done())
    )
    result = found.results["c"]
    assert (result.outputs[0].data, result.truncated) == (image["data"], True)
    assert len(shown) == len(result.outputs) == 1 + kept


@given(
    value=st.recursive(st.one_of(texts, st.integers()), lambda inner: st.lists(inner, max_size=3)),
    most=st.integers(0, 9),
)
def test_what_of_a_json_text_is_outside_of_its_strings(value: object, most: int) -> None:
    text = json.dumps(value)
    expected = len(re.sub(r'"(\\.|[^"\\])*"', "", text))
    found = outside_strings(text.encode(), most=most)
    assert found == expected or min(found, expected) > most


def test_the_program_is_the_gateways_and_runs_on_python_3_8() -> None:
    with open(python_driver.__file__, encoding="utf-8") as file:
        assert driver() == file.read()
    ast.parse(driver(), feature_version=(3, 8))
    assert len(driver()) < 100_000  # an argument of a program has at most 128 KiB
