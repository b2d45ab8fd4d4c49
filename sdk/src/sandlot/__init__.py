"""Run untrusted code in isolated sandboxes."""

__version__ = "0.1.0"
