"""State machines for the instance and its ops, as plain data: no I/O, clock or tasks."""
