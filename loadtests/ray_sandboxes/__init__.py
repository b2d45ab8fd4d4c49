"""Rollouts in Ray's sandboxes, which `make bench-cluster` compares with ours."""
