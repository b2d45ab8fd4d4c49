"""Where a sandbox may send: the body of the route, what holds it, and the proxy that reads whom a connection is for."""
