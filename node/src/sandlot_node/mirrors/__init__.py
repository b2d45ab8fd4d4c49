"""Lets the node's containerd pull through caches of registries, while they answer."""
