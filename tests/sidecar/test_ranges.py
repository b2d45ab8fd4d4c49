"""Ranges and windows of a file: inside of it, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.server.ranges import parse_range, window


@given(header=st.from_regex(r"\A(bytes=)?[0-9]{0,21}-?[0-9]{0,21}\Z") | st.text(), size=st.integers(0, 2000))
def test_a_range_is_inside_of_the_file(header: str, size: int) -> None:
    try:
        found = parse_range(header, size=size)
    except ApiError as error:
        assert error.status == 416
        return
    if found is not None:
        start, length = found
        assert length > 0
        assert 0 <= start < start + length <= size


@pytest.mark.parametrize("digits", ["9223372036854775807", "9" * 19, "9" * 20, "9" * 10_000])
def test_a_range_of_any_number_is_a_range(digits: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_range(f"bytes={digits}-", size=100)
    assert refused.value.status == 416
    assert parse_range(f"bytes=10-{digits}", size=100) == (10, 90)
    assert parse_range(f"bytes=-{digits}", size=100) == (0, 100)
    assert parse_range(f"bytes={'0' * 20}5-{'0' * 5000}7", size=100) == (5, 3)


@given(
    size=st.integers(0, 100),
    offset=st.integers(-150, 150),
    length=st.none() | st.integers(0, 150),
)
def test_a_window_is_inside_of_the_file(size: int, offset: int, length: int | None) -> None:
    try:
        start, found = window(size=size, offset=offset, length=length, maximum=60)
    except ApiError as error:
        assert error.status == 413
        assert length is None
        return
    assert 0 <= start <= start + found <= size
    assert found <= 60
