"""The Kubernetes controller, and the names that it and the gateway must agree on."""

__version__ = "0.1.0"
