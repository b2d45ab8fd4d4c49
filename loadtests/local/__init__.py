"""Rows of `make bench` that measure sandboxes and sidecars of this machine."""
