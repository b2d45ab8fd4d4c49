"""The state of the cluster, as the watches report it, and what follows from that alone."""
