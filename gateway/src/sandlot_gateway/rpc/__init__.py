"""Serves the RPC generation of Prime's clients: command sessions over Connect, mapped to a sidecar's ops."""
