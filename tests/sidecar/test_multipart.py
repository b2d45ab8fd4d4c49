"""Bodies in parts, cut at every place: each part is found whole, or the body is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.server import multipart
from sandlot_sidecar.server.multipart import BEGIN, DATA, FINISH, Multipart, boundary_of, parameter

from tests.sidecar.executed_lines import lines_of

BOUNDARY = b"xYz"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The pieces between the places."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)
# Contents that are all but the boundary are the hard ones.
HARD = st.lists(st.sampled_from([b"\r", b"\n", b"--", b"xYz", b"\r\n--xY", b"a", b"\0"])).map(b"".join)
CONTENT = HARD.filter(lambda content: b"\r\n--xYz" not in content)


@given(parts=st.lists(CONTENT, min_size=1, max_size=3), places=PLACES)
@example(parts=[b""], places=[])
def test_multipart_gives_every_part_whole_however_it_is_cut(parts: list[bytes], places: list[int]) -> None:
    body = b"a preamble\r\n"
    for number, content in enumerate(parts):
        disposition = b'Content-Disposition: form-data; name="p%d"; filename="a\\"b"' % number
        body += b"--xYz\r\n" + disposition + b"\r\nX: y\r\n\r\n" + content + b"\r\n"
    body += b"--xYz--\r\nan epilogue"
    parser = Multipart(BOUNDARY)
    seen: list[tuple[bytes, bytes]] = []
    open_part = False
    for piece in cut(body, places):
        for kind, value in parser.feed(piece):
            if kind == BEGIN:
                assert not open_part
                open_part = True
                seen.append((value, b""))
            elif kind == DATA:
                assert value
                seen[-1] = (seen[-1][0], seen[-1][1] + value)
            else:
                assert kind == FINISH
                open_part = False
    assert parser.complete
    assert not open_part
    assert seen == [(b"p%d" % number, content) for number, content in enumerate(parts)]


@given(data=st.binary(max_size=300), places=PLACES)
def test_multipart_takes_or_refuses_anything(data: bytes, places: list[int]) -> None:
    parser = Multipart(BOUNDARY)
    try:
        for piece in cut(data, places):
            parser.feed(piece)
    except ApiError as error:
        assert error.status == 400


def test_a_multipart_body_has_a_thousand_parts_at_most() -> None:
    empty = b"--xYz\r\n\r\n\r\n"
    fits = Multipart(BOUNDARY)
    assert len(fits.feed(empty * 1000 + b"--xYz--")) == 2000
    assert fits.complete
    parser = Multipart(BOUNDARY)

    def feed() -> None:
        with pytest.raises(ApiError, match="over 1000 parts") as refused:
            parser.feed(empty * 20_000)
        assert refused.value.status == 400

    assert lines_of(multipart, feed) < 60_000


@given(st.text(max_size=60))
def test_a_content_type_has_a_boundary_or_is_refused(text: str) -> None:
    try:
        assert 0 < len(boundary_of(text)) <= 200
    except ApiError as error:
        assert error.status == 400


def test_a_header_of_many_parameters_is_read_once() -> None:
    """So many that to copy what is left for each would take minutes; a form has a thousand parts with 16 KiB of header."""
    value = b"form-data" + b";a=b" * 500_000 + b'; name="f\\"ile" ;x'
    assert parameter(value, b"name") == b'f"ile'
    assert parameter(value, b"other") is None
