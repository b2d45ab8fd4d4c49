"""What is done: loops that ask the plan, and requests to the API server and to sidecars."""
