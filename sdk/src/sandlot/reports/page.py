"""Builds one HTML page: heading, key figures, tables and charts; responsive, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_STYLE = """
:root{color-scheme:light dark;--bg:#fbfbf9;--card:#fff;--text:#1c1f23;--soft:#5d6570;--edge:#e0e2e0;
--c0:#2f6fb5;--c1:#d97b1f;--c2:#3a8f5c;--c3:#c2413b;--c4:#7d5bb0;--c5:#8a6a3f;--c6:#b8558f;--c7:#5f7d85}
@media (prefers-color-scheme:dark){:root{--bg:#15181c;--card:#1d2126;--text:#e6e8ea;--soft:#9aa3ad;--edge:#333a42;
--c0:#6fa8e6;--c1:#efa14f;--c2:#67bd8a;--c3:#ea7169;--c4:#ac8fe0;--c5:#c2a070;--c6:#e28bbd;--c7:#93b2ba}}
*{box-sizing:border-box}
body{margin:0;padding:1rem;background:var(--bg);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:auto}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.05rem;margin:0 0 .5rem}
p{margin:.3rem 0 .8rem}.note{color:var(--soft);font-size:.9rem}
.figures{display:flex;flex-wrap:wrap;gap:.75rem;margin:1rem 0;padding:0;list-style:none}
.figures li,section{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:.7rem .9rem}
.figures b{display:block;font-size:1.35rem;line-height:1.2}.figures span{color:var(--soft);font-size:.85rem}
.bad b{color:var(--c3)}.good b{color:var(--c2)}
.cards{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr))}
section.wide{grid-column:1/-1}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .5rem;border-bottom:1px solid var(--edge);white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}td.text{white-space:normal}
th{font-weight:600;color:var(--soft)}tr.bad td{color:var(--c3)}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--text);font:12px system-ui,sans-serif}svg text.axis{fill:var(--soft)}
.grid{stroke:var(--edge);stroke-width:1}.limit{stroke:var(--text);stroke-width:1.5;stroke-dasharray:4 3}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;margin:.5rem 0 0;padding:0;list-style:none;font-size:.85rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em}
"""
_COLORS = "".join(
    f".line.c{n}{{stroke:var(--c{n})}}.bar.c{n}{{fill:var(--c{n})}}i.c{n}{{background:var(--c{n})}}"
    for n in range(8)
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure. `good` colours it: True, False, or None for neither."""

    value: str
    label: str
    good: bool | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `bad` holds the indexes of rows to mark, `words` those of text columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    bad: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()

    def html(self) -> str:
        def cell(tag: str, column: int, content: str) -> str:
            kind = ' class="text"' if column in self.words else ""
            return f"<{tag}{kind}>{escape(content)}</{tag}>"

        head = "".join(cell("th", column, name) for column, name in enumerate(self.head))
        body = "".join(
            f"<tr{' class=bad' if index in self.bad else ''}>"
            + "".join(cell("td", column, content) for column, content in enumerate(row))
            + "</tr>"
            for index, row in enumerate(self.rows)
        )
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


@dataclass(slots=True)
class Page:
    """A page; sections appear in the order of `add`."""

    title: str
    summary: str
    figures: list[Figure] = field(default_factory=list[Figure])
    _sections: list[str] = field(default_factory=list[str])

    def add(self, heading: str, content: str | Table, *, note: str = "", wide: bool = False) -> None:
        """Add a card with a chart (HTML from `charts`) or a table; `note` is plain text."""
        body = content.html() if isinstance(content, Table) else content
        below = f'<p class="note">{escape(note)}</p>' if note else ""
        kind = ' class="wide"' if wide else ""
        self._sections.append(f"<section{kind}><h2>{escape(heading)}</h2>{body}{below}</section>")

    def html(self) -> str:
        moods = {True: ' class="good"', False: ' class="bad"', None: ""}
        figures = "".join(
            f"<li{moods[figure.good]}><b>{escape(figure.value)}</b><span>{escape(figure.label)}</span></li>"
            for figure in self.figures
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}{_COLORS}</style></head><body><main>"
            f"<h1>{escape(self.title)}</h1><p>{escape(self.summary)}</p>"
            f'<ul class="figures">{figures}</ul><div class="cards">{"".join(self._sections)}</div>'
            "</main></body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page, and create its directory. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.html().encode("utf-8", "replace"))  # a server may send half of a surrogate pair
