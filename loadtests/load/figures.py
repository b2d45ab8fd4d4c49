"""Writes the report's plots as standalone SVG files with legend and colours, for Markdown pages."""

from __future__ import annotations

import html
import re
from pathlib import Path

from sandlot_grade.report.svg import LEFT, WIDTH

_SVG = re.compile(r'<svg viewBox="0 0 (\S+) (\S+)"([^>]*)>(.*)</svg>', re.DOTALL)
_LEGEND = re.compile(r'<li><i class="c(\d)"></i>(.*?)</li>')
_COLORS = ("#2f6fb5", "#d97b1f", "#3a8f5c", "#c2413b", "#7d5bb0", "#8a6a3f", "#b8558f", "#5f7d85")
_LINE = 16.0  # height of a line of the legend
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1c1f23}.grid{stroke:#e0e2e0}"
    ".limit{stroke:#1c1f23;stroke-width:1.5;stroke-dasharray:4 3}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}"
    + "".join(f".line.c{n}{{stroke:{color}}}.bar.c{n}{{fill:{color}}}" for n, color in enumerate(_COLORS))
)


def standalone(chart: str, *, title: str) -> str | None:
    """Return a chart of `sandlot_grade.report.charts` as a whole document, or None if it is empty."""
    found = _SVG.search(chart)
    if found is None:
        return None
    width, height = float(found[1]), float(found[2])
    names = [(int(color), html.unescape(name)) for color, name in _LEGEND.findall(chart)]
    top = 24.0
    whole = top + height + _LINE * len(names) + 8
    legend = "".join(
        f'<rect class="bar c{color}" x="{LEFT:g}" y="{top + height + _LINE * row + 2:g}" width="10" height="10"/>'
        f'<text x="{LEFT + 16:g}" y="{top + height + _LINE * row + 11:g}">{html.escape(name)}</text>'
        for row, (color, name) in enumerate(names)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {whole:g}" width="{WIDTH:g}" role="img" '
        f'aria-label="{html.escape(title)}"><style>{_STYLE}</style>'
        f'<rect width="{width:g}" height="{whole:g}" fill="#fff"/><text x="{LEFT:g}" y="16">{html.escape(title)}</text>'
        f'<g transform="translate(0 {top:g})">{found[4]}</g>{legend}</svg>\n'
    )


def write_figures(folder: Path, plots: dict[str, str]) -> list[Path]:
    """Write a file for each non-empty plot, named by its heading."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for title, chart in plots.items():
        document = standalone(chart, title=title)
        if document is not None:
            path = folder / f"{re.sub('[^a-z]+', '-', title.lower()).strip('-')}.svg"
            path.write_text(document, encoding="utf-8")
            written.append(path)
    return written
