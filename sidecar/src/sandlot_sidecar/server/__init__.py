"""The half of the sidecar that talks HTTP: claims, ops, files, webhooks."""
