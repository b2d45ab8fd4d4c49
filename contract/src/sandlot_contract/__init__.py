"""What gateway, controller and sidecar must agree on: plain values and pure functions, standard library only."""

__version__ = "0.1.0"
