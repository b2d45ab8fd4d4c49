"""Draws the parts that all charts share: the SVG element, axes with grid lines, and a legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from sandlot_grade.report.scale import Scale

# Narrow, so that text in user units stays readable when a phone shrinks the drawing.
WIDTH = 460.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 38.0


def document(parts: Sequence[str], *, height: float, label: str) -> str:
    """Return an `<svg>` element that scales to its container; `label` is for screen readers."""
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


def x_axis(scale: Scale, *, bottom: float, top: float, title: str, form: Callable[[float], str]) -> str:
    """Draw grid lines and numbers along the bottom edge."""
    parts: list[str] = []
    for tick in scale.ticks():
        x = scale(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:g}"/>')
        parts.append(text(form(tick), x=x, y=bottom + 14, anchor="middle"))
    parts.append(text(title, x=(scale.start + scale.end) / 2, y=bottom + 31, anchor="middle", kind="axis"))
    return "".join(parts)


def y_axis(scale: Scale, *, left: float, right: float, form: Callable[[float], str]) -> str:
    """Draw grid lines and numbers along the left edge."""
    parts: list[str] = []
    for tick in scale.ticks():
        y = scale(tick)
        parts.append(f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(form(tick), x=left - 5, y=y + 4, anchor="end"))
    return "".join(parts)


def text(content: str, *, x: float, y: float, anchor: str = "start", kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def line(points: Sequence[tuple[float, float]], *, color: int, title: str) -> str:
    """Draw a line through pixel positions in the page's colour number `color`."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="line c{color % 8}" points="{path}"><title>{escape(title)}</title></polyline>'


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the positions with level steps between them instead of slopes."""
    stepped: list[tuple[float, float]] = []
    for x, y in points:
        if stepped:
            stepped.append((x, stepped[-1][1]))
        stepped.append((x, y))
    return stepped


def legend(names: Sequence[tuple[str, int]]) -> str:
    """Return the names with their colours, as HTML below a chart, so that it wraps on a narrow screen."""
    items = "".join(f'<li><i class="c{color % 8}"></i>{escape(name)}</li>' for name, color in names)
    return f'<ul class="legend">{items}</ul>'
