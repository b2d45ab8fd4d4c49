"""What gateway and controller both need of Kubernetes: names, shapes, a small API client."""

__version__ = "0.1.0"
