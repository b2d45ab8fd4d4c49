"""Adapters that make Sandlot the backend of frameworks; each imports its framework only when it is imported itself."""
