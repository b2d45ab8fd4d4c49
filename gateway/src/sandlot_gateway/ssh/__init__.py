"""SSH into sandboxes: the gateway is the server, so images need none. Only this package loads asyncssh."""
