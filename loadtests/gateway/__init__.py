"""The gateway's rates on one core, over stubs of all other parts."""
