"""SSH into sandboxes: the gateway is the server, so an image needs none. Only here is asyncssh loaded."""
