"""Sandboxes in the pods of a Kubernetes cluster: asks for them by resources, finds them by watch and webhook."""
