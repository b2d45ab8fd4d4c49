"""What the gateway's clients of Python contexts share: the program, its requests, and its answers, which it distrusts."""
