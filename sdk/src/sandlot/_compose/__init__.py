"""Reads compose files: of one service, and of a group of them."""
