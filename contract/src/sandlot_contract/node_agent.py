"""What the node agent and its callers agree on, beside its port."""

LONGEST_WAIT = 30.0  # seconds that a call may ask the agent to wait for an image; it rejects more
