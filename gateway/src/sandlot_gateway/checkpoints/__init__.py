"""Checkpoints: what sandboxes have written, kept beyond their end."""
