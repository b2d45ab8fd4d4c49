"""Chooses the node of each new pod: what pods need, what nodes have, and which node comes first."""
