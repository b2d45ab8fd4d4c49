"""HTTP/1.1 over asyncio: kept connections per server, buffered and streamed answers, streamed bodies."""
