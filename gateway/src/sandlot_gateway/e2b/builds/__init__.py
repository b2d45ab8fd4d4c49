"""E2B's template builds: steps replayed in a sandbox of the tenant, whose files become a checkpoint."""
