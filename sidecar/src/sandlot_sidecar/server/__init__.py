"""The server process of the sidecar, which talks HTTP: claims, ops, files, webhooks."""
