"""Rollouts of a code environment on verifiers, with a scripted model, for load tests."""
