"""The engine that stands on the node's containerd: its CRI pulls, its snapshots are mounted, its leases keep them."""
