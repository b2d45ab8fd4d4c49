"""What the gateway decides, as plain data: no I/O, no clock of its own, no tasks; engine/ acts on it."""
