"""The Kubernetes controller: creates the pods of pools and sandboxes, writes their status, and deletes them."""

__version__ = "0.1.0"
