"""Writes and restores the upper layer of a sandbox as one archive, in a process of its own."""
