"""Benchmarks and load tests: measurements against floors of the same run, and their bounds."""
