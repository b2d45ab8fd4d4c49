"""Slots and images on simulated nodes: the controller's placement beside models of kube-scheduler's."""
