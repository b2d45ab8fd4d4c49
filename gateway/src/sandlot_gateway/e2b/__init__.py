"""E2B's wire: its control REST and envd, so that its unmodified SDKs run sandboxes here (docs/e2b.md)."""
