"""Self-contained HTML reports with SVG plots: no script, font or other file."""
