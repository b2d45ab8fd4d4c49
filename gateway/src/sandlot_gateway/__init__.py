"""The gateway: control API, data plane, ready queue and the backends."""

__version__ = "0.1.0"
