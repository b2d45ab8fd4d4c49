"""What the gateway decides, as plain data: no I/O, no clock of its own, no tasks; see supply.py for who acts on it."""
