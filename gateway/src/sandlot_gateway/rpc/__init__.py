"""The RPC generation of Prime's clients: command sessions over Connect, with a sidecar's ops underneath."""
