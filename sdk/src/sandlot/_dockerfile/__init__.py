"""Reads Dockerfiles and build contexts, and says what to do in a sandbox; it sends nothing."""
