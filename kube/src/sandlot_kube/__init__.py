"""Kubernetes code that gateway and controller share: resource types, verdicts on pods, a small API client."""

__version__ = "0.1.0"
