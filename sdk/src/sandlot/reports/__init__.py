"""Reports as self-contained HTML pages: no script, font or other file."""
