"""The asynchronous API: the source from which the synchronous one is generated."""
