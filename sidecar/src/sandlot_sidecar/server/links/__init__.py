"""Services of a group: their names in the sandbox, and connections to them by way of the gateway."""
