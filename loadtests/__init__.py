"""Measurements against floors taken in the same run, and the bounds they must keep."""
