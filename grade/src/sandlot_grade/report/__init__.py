"""Self-contained HTML reports with plots drawn as SVG: no script, no font, no file beside the page."""
