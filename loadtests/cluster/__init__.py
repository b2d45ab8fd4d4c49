"""The rows of `make bench-cluster`."""
