"""What a call costs the SDK's own process, against a stub server."""
