"""Webhooks: sends a tenant's events to the addresses that the operator has written down."""
