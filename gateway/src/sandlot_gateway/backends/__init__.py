"""The backends: one package for Kubernetes, one for this machine."""
