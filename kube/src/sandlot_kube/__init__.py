"""What gateway and controller both need of Kubernetes: shapes, verdicts on pods, a small API client."""

__version__ = "0.1.0"
