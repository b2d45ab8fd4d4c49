"""Sandboxes on this one Linux machine: starts and finds sidecars, and takes away all they left."""
