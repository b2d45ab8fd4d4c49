# This file is auto-generated from sdk/src/sandlot/_async/__init__.py by tools/async_to_sync.py: do not change it.
"""The synchronous API: the source from which the synchronous one is generated."""
