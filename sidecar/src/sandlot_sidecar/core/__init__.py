"""What decides: the life of the instance and of its ops as plain data, without I/O, clock or tasks."""
