"""HTTP/1.1 over blocking sockets: the interface of the asyncio transport, for any number of threads."""
