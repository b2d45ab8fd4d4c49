"""Loops that carry out the plan by requests to the API server and to sidecars."""
