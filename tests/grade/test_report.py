"""Reports: numbers, axes, charts and pages that a browser can show without any other file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sandlot.reports.page import Figure, Page, Table
from sandlot_grade.html import page
from sandlot_grade.report import charts
from sandlot_grade.report.scale import linear, logarithmic, seconds, short
from sandlot_grade.report.stats import distribution, level, median, percentile, rate
from sandlot_grade.tally import Tally

from tests.grade.outcomes import outcome

FINITE = st.floats(min_value=1e-6, max_value=1e6)


class _Balance(HTMLParser):
    """Counts open elements, and notes everything that would be fetched from elsewhere."""

    EMPTY = frozenset({"meta", "line", "rect", "polyline"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _check(html: str) -> None:
    parser = _Balance()
    parser.feed(html)
    assert parser.open == []
    assert parser.links == []
    assert "@import" not in html
    assert "url(" not in html
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        root = ElementTree.fromstring(drawing)
        numbers = [float(part) for part in root.attrib["viewBox"].split()]
        for element in root.iter():
            for name in ("x", "y", "width", "height", "x1", "x2", "y1", "y2"):
                if name in element.attrib:
                    value = float(element.attrib[name])
                    assert -1 <= value <= max(numbers) + 1, (name, value)


def test_percentiles() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1, 2], 0.5) == 1.5
    assert percentile(range(101), 0.99) == 99
    assert median([7]) == 7
    with pytest.raises(ValueError, match="no values"):
        median([])
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1], 50)


@given(st.lists(FINITE, min_size=1, max_size=500))
def test_a_distribution_rises_to_one(values: list[float]) -> None:
    steps = distribution(values, points=50)
    assert len(steps) <= 51
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1] == (max(values), 1.0)
    assert steps[0][0] == min(values)


def test_rate_and_level() -> None:
    assert rate([0.1, 0.2, 0.9], start=0.0, end=1.0, bins=2) == [(0.25, 4.0), (0.75, 2.0)]
    assert rate([], start=0.0, end=0.0) == []
    assert level([(1.0, 3.0), (2.0, 4.0)], start=1.0) == [(0.0, 1), (1.0, 2), (2.0, 1), (3.0, 0)]


@given(FINITE, FINITE)
@example(0.5, 1.0000001)
@example(0.99999999, 2.0)
def test_a_logarithmic_scale_holds_its_ends(one: float, other: float) -> None:
    low, high = sorted((one, other))
    scale = logarithmic(low=low, high=high, start=0, end=100)
    assert -1e-6 <= scale(low) <= scale(high) <= 100 + 1e-6
    assert 1 <= len(scale.ticks()) <= 14
    assert all(-1e-2 <= scale(tick) <= 100 + 1e-2 for tick in scale.ticks())


@given(FINITE)
def test_a_linear_scale_has_round_ticks(high: float) -> None:
    ticks = linear(high=high, start=0, end=100).ticks()
    assert ticks[0] == 0
    assert 3 <= len(ticks) <= 8


def test_numbers_read_well() -> None:
    assert [seconds(value) for value in (0.00002, 0.0015, 0.015, 0.15, 1.5, 150)] == [
        "20 µs",
        "1.50 ms",
        "15.0 ms",
        "150 ms",
        "1.50 s",
        "150 s",
    ]
    assert [short(value) for value in (0.05, 20, 25000, 2e6)] == ["0.05", "20", "25k", "2M"]


@given(st.dictionaries(st.text(max_size=8), st.lists(FINITE, max_size=30), max_size=5))
def test_charts_are_sound_for_any_input(series: dict[str, list[float]]) -> None:
    report = Page(title="<t>", summary="&")
    report.add("d", charts.distributions(series))
    report.add(
        "o", charts.over_time({name: list(enumerate(values)) for name, values in series.items()}, unit="<u>")
    )
    report.add(
        "s", charts.stacked_bars({name: {str(v): int(v) for v in values} for name, values in series.items()})
    )
    report.add("b", charts.bounds([(name, min(sum(values), 9.0), True) for name, values in series.items()]))
    report.figures.append(Figure("<b>", "&", good=False))
    _check("".join(character for character in report.html() if character.isprintable()))


def test_a_grading_report_shows_every_kind(tmp_path: Path) -> None:
    made = Tally()
    for index in range(200):
        made.add(outcome(index))
    made.add(outcome(200, kind="loop <endless>", result="timeout"))
    made.add(outcome(201, kind="lost ones", result="lost"))
    path = tmp_path / "deep" / "report.html"
    page(made, title="A run", elapsed=3.0, facts=[("cores", "2")]).write(path)
    html = path.read_text()
    _check(html)
    assert "loop &lt;endless&gt;" in html
    assert "<endless>" not in html
    assert html.count("<svg") == 4
    assert "prefers-color-scheme:dark" in html
    assert "width=device-width" in html
    assert "67.3" in html  # rollouts per second
    _check(page(Tally(), title="Nothing", elapsed=0.0).html())


def test_a_table_marks_bad_rows_and_escapes() -> None:
    html = Table(("a", "b"), [("<1>", "2"), ("3", "4")], bad=frozenset({1}), words=frozenset({1})).html()
    assert "&lt;1&gt;" in html
    assert html.count("class=bad") == 1
    assert html.count('class="text"') == 3
