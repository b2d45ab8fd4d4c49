"""The gateway: control API, data plane, ready queue and the local backend."""

__version__ = "0.1.0"
