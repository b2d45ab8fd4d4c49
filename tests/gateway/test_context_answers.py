"""Lines that code forged into the answers of its Python context: what parsing one costs is bounded by its size."""

from __future__ import annotations

import tracemalloc

import pytest
from sandlot_gateway.python_context.answers import Answer, BadOutput, NoAnswer, media, parse

MOST = 64  # media types of an output


def line(number: int, *, kind: str = "display") -> bytes:
    types = ",".join(f'"type/{index}":"{index}"' for index in range(number))
    return f'{{"type":"{kind}","id":"1","data":{{{types}}}}}'.encode()


def test_an_output_has_a_bounded_number_of_media_types() -> None:
    assert len(media(parse(line(MOST), ("1",)).data)) == MOST
    many = line(MOST + 1)
    assert parse(many, ("2",)) == Answer("display", "1")
    with pytest.raises(BadOutput):
        parse(many, ("1",))


@pytest.mark.parametrize("wanted", ["1", "2"])
def test_a_line_of_many_parts_takes_little_more_memory_than_its_bytes(wanted: str) -> None:
    types = line(300_000)
    texts = b'{"type":"done","id":"1","error":{"name":"","value":"","traceback":[%s"aa"]}}' % (
        b'"aa",' * 600_000
    )
    tracemalloc.start()
    try:
        for forged in (types, texts):
            tracemalloc.reset_peak()
            try:
                parse(forged, (wanted,))
            except (BadOutput, NoAnswer):
                assert wanted == "1"
            assert tracemalloc.get_traced_memory()[1] < 2 * len(forged)
    finally:
        tracemalloc.stop()
