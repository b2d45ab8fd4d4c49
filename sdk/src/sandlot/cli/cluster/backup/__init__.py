"""Backup and restore of an installation on Kubernetes: what must last, in one file."""
