"""The asynchronous flavour: the source from which the synchronous one is generated."""
