"""The Kubernetes controller: makes the pods of pools and sandboxes, tells their state, ends them."""

__version__ = "0.1.0"
