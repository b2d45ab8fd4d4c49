"""Checkpoints: the files that sandboxes have written, stored beyond their end."""
