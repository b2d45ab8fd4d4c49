"""What the cluster is: what the watches have told, and what follows from that alone."""
