"""What comes of an HTTP body beside its content is counted from its head to its end, and from each part of it anew."""

from __future__ import annotations

from sandlot_contract.framing import Framing


def test_only_what_comes_inside_a_body_counts() -> None:
    framing = Framing()
    framing.arrived(10)
    assert framing.size == 0
    framing.begin()
    framing.arrived(10)
    framing.arrived(5)
    assert framing.size == 15
    framing.end()
    framing.arrived(10)
    assert framing.size == 0


def test_each_part_of_the_content_begins_the_count_anew() -> None:
    framing = Framing()
    framing.begin()
    framing.arrived(10)
    framing.content()
    framing.arrived(3)
    assert framing.size == 3
