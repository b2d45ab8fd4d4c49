"""Events of sandboxes for trainers: what happened, kept for a while, as streams and as webhooks."""
