"""Plots of self-contained HTML reports, as SVG: no script, font or other file."""
