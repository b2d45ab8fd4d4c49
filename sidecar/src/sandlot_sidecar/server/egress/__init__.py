"""Egress policies: their route's body, their enforcement, and the proxy that reads host names from connections."""
