"""The audit log: what a call leaves for its record, and where records are written; control/audit.py makes them."""
