"""HTTP/1.1 over asyncio: pooled connections, buffered and streamed responses, streamed request bodies."""
