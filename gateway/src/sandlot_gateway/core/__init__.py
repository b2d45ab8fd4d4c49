"""The gateway's decisions as plain data: no I/O, no clock, no tasks. engine/ carries them out."""
