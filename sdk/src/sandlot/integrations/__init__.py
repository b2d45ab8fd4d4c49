"""Adapters that make Sandlot the sandbox of other frameworks; each imports its framework, and nothing imports them."""
