"""The gateway: control API, data plane, warm pool and backends."""

__version__ = "0.1.0"
