"""Draws a report's charts: distribution curves, stacked bars, and lines over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from sandlot_grade.report import svg
from sandlot_grade.report.scale import linear, logarithmic, seconds, short
from sandlot_grade.report.stats import distribution

Point = tuple[float, float]


def distributions(series: Mapping[str, Sequence[float]]) -> str:
    """Draw cumulative distributions of durations in seconds on a logarithmic axis, one line a series."""
    filled = {name: values for name, values in series.items() if values}
    if not filled:
        return _nothing()
    height = 260.0
    bottom = height - svg.BOTTOM
    x = logarithmic(
        low=min(min(values) for values in filled.values()),
        high=max(max(values) for values in filled.values()),
        start=svg.LEFT,
        end=svg.WIDTH - svg.RIGHT,
    )
    y = linear(high=1.0, start=bottom, end=svg.TOP)
    parts = [
        svg.x_axis(x, bottom=bottom, top=svg.TOP, title="time (logarithmic)", form=seconds),
        svg.y_axis(y, left=svg.LEFT, right=svg.WIDTH - svg.RIGHT, form=lambda share: f"{share:.0%}"),
    ]
    names: list[tuple[str, int]] = []
    for color, (name, values) in enumerate(filled.items()):
        points = [(x(value), y(share)) for value, share in distribution(values)]
        points.insert(0, (points[0][0], y(0)))
        parts.append(svg.line(svg.stairs(points), color=color, title=name))
        names.append((name, color))
    return svg.document(parts, height=height, label="distribution of " + ", ".join(filled)) + svg.legend(
        names
    )


def stacked_bars(rows: Mapping[str, Mapping[str, int]]) -> str:
    """Draw a horizontal bar for each row, divided by the counts of its parts; each bar fills the width."""
    if not rows:
        return _nothing()
    parts_seen = list(dict.fromkeys(part for counts in rows.values() for part in counts))
    colors = {part: index for index, part in enumerate(parts_seen)}
    step, left = 26.0, 126.0
    right = svg.WIDTH - 46.0
    out: list[str] = []
    for index, (name, counts) in enumerate(rows.items()):
        total = sum(counts.values())
        top = svg.TOP + index * step
        out.append(svg.text(name, x=left - 6, y=top + 14, anchor="end"))
        out.append(svg.text(str(total), x=right + 6, y=top + 14))
        x = left
        for part, count in counts.items():
            width = (right - left) * count / total if total else 0.0
            out.append(
                f'<rect class="bar c{colors[part] % 8}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="18"><title>{escape(f"{name}: {count} {part}")}</title></rect>'
            )
            x += width
    height = svg.TOP * 2 + len(rows) * step
    return svg.document(out, height=height, label="counts per row") + svg.legend(list(colors.items()))


def over_time(series: Mapping[str, Sequence[Point]], *, unit: str, steps: bool = False) -> str:
    """Draw lines over seconds since the start; with `steps`, a value holds until the next."""
    filled = {name: points for name, points in series.items() if points}
    if not filled:
        return _nothing()
    height = 200.0
    bottom = height - svg.BOTTOM
    every = [point for points in filled.values() for point in points]
    x = linear(high=max(moment for moment, _ in every), start=svg.LEFT, end=svg.WIDTH - svg.RIGHT)
    y = linear(high=max(value for _, value in every) * 1.05, start=bottom, end=svg.TOP)
    parts = [
        svg.x_axis(x, bottom=bottom, top=svg.TOP, title="seconds since the start", form=short),
        svg.y_axis(y, left=svg.LEFT, right=svg.WIDTH - svg.RIGHT, form=short),
    ]
    names: list[tuple[str, int]] = []
    for color, (name, points) in enumerate(filled.items()):
        placed = [(x(moment), y(value)) for moment, value in points]
        parts.append(svg.line(svg.stairs(placed) if steps else placed, color=color, title=f"{name}, {unit}"))
        names.append((f"{name} ({unit})", color))
    return svg.document(parts, height=height, label=f"{unit} over time") + svg.legend(names)


def bounds(rows: Sequence[tuple[str, float, bool]]) -> str:
    """Draw a bar for each measurement: the share of its bound that it uses, with the bound at 100 %."""
    if not rows:
        return _nothing()
    step, left = 30.0, 12.0
    right = svg.WIDTH - 54.0
    widest = max(1.25, *(share for _, share, _ in rows))
    x = linear(high=widest, start=left, end=right)
    height = svg.TOP * 2 + len(rows) * step
    out: list[str] = []
    for index, (name, share, held) in enumerate(rows):
        top = svg.TOP + index * step
        out.append(svg.text(name, x=left, y=top + 8))
        out.append(
            f'<rect class="bar {"c2" if held else "c3"}" x="{left:g}" y="{top + 12:.1f}" '
            f'width="{max(x(share) - left, 1):.1f}" height="9"><title>{escape(f"{name}: {share:.0%}")}</title></rect>'
        )
        out.append(svg.text(f"{share:.0%}", x=x(share) + 5, y=top + 21))
    out.append(f'<line class="limit" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="4" y2="{height - 4:g}"/>')
    return svg.document(out, height=height, label="share of each bound that is used")


def _nothing() -> str:
    return '<p class="note">no measurements</p>'
