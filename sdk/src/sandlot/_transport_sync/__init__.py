"""HTTP/1.1 over blocking sockets: the same interface as the asyncio transport, for any number of threads."""
