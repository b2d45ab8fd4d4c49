"""Create to first output with Prime's unmodified clients."""
