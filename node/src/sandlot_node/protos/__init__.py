"""What tools/protobuf.py makes of proto/: do not change it."""
