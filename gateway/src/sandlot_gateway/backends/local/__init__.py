"""Sandboxes on this Linux machine: starts, finds and removes sidecar processes and their files."""
