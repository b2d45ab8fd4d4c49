"""Grades candidate programs in sandboxes: `sandlot grade FILE.jsonl` and the demo."""
