"""Connect's envelopes and E2B's uploads, cut at every place: each message is found whole, or the bytes are refused."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.e2b.envelope import END, EnvelopeReader, envelope, only
from sandlot_gateway.e2b.failures import EnvdFailure
from sandlot_gateway.e2b.multipart import Mark, MultipartReader, Part, boundary_of

DOCUMENTS = st.lists(
    st.recursive(st.none() | st.integers(-9, 9) | st.text(max_size=20), st.lists, max_leaves=5)
)
PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)
# Contents that are all but the boundary are the hard ones.
HARD = st.lists(st.sampled_from([b"\r", b"\n", b"--", b"xYz", b"\r\n--xY", b"a", b"\0"])).map(b"".join)
CONTENT = HARD.filter(lambda content: b"\r\n--xYz" not in content)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


@given(documents=DOCUMENTS, places=PLACES)
def test_messages_are_found_whole_however_they_are_cut(documents: list[object], places: list[int]) -> None:
    reader = EnvelopeReader()
    found = [
        json.loads(payload)
        for piece in cut(b"".join(map(envelope, documents)), places)
        for payload in reader.feed(piece)
    ]
    reader.finish()
    assert found == documents


@given(data=st.binary(max_size=200), places=PLACES)
def test_any_bytes_are_messages_or_refused(data: bytes, places: list[int]) -> None:
    reader = EnvelopeReader(limit=64)
    size = 0
    try:
        for piece in cut(data, places):
            size += sum(5 + len(payload) for payload in reader.feed(piece))
        reader.finish()
    except EnvdFailure as failure:
        assert failure.code in ("invalid_argument", "resource_exhausted", "unimplemented")
    else:
        assert size == len(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_argument"),
        (envelope({}) * 2, "invalid_argument"),
        (envelope({})[:-1], "invalid_argument"),
        (envelope({}, flags=END), "invalid_argument"),
        (envelope({}, flags=1), "unimplemented"),
        (b"\0\xff\xff\xff\xff", "resource_exhausted"),
    ],
)
def test_a_request_is_one_whole_message(data: bytes, code: str) -> None:
    with pytest.raises(EnvdFailure) as refused:
        only(data)
    assert refused.value.code == code


def parts(body: bytes, places: list[int]) -> list[tuple[str, str | None, bytes]]:
    reader = MultipartReader(b"xYz")
    found: list[tuple[str, str | None, bytes]] = []
    open_part = False
    for piece in cut(body, places):
        for event in reader.feed(piece):
            if isinstance(event, Part):
                assert not open_part
                found.append((event.name, event.filename, b""))
                open_part = True
            elif event is Mark.END_OF_PART:
                open_part = False
            else:
                assert isinstance(event, bytes)
                assert open_part
                found[-1] = (*found[-1][:2], found[-1][2] + event)
    reader.finish()
    return found


@given(contents=st.lists(CONTENT, min_size=1, max_size=3), places=PLACES)
def test_uploads_are_found_whole_however_they_are_cut(contents: list[bytes], places: list[int]) -> None:
    body = b"a preamble\r\n"
    for content in contents:
        head = b'content-disposition: form-data; name="file"; filename="/a \\"b%22;"\r\nX: y\r\n\r\n'
        body += b"--xYz\r\n" + head + content + b"\r\n"
    found = parts(body + b"--xYz--\r\nan epilogue", places)
    assert found == [("file", '/a "b";', content) for content in contents]


@given(data=HARD, places=PLACES)
def test_any_bytes_are_an_upload_or_refused(data: bytes, places: list[int]) -> None:
    try:
        found = parts(b"--xYz\r\n" + data, places)
    except EnvdFailure as failure:
        assert failure.code == "invalid_argument"
    else:
        assert found == []


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 20_000,
        b"--xYz\r\n" + b"a: b\r\n" * 4000,
        b"--xYz\r\nno-disposition: 1\r\n\r\nx\r\n--xYz--",
        b'--xYz\r\ncontent-disposition: form-data; name="file"\r\n\r\ncut off',
        b'--xYz\r\ncontent-disposition: form-data; name="f"\r\n\r\n\r\n' * 1001 + b"--xYz--",
    ],
)
def test_an_upload_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(EnvdFailure):
        parts(body, [])


@pytest.mark.parametrize("kind", ["multipart/form-data", 'multipart/form-data; boundary=""', "x; boundary=ä"])
def test_a_boundary_is_needed(kind: str) -> None:
    with pytest.raises(EnvdFailure):
        boundary_of(kind)
