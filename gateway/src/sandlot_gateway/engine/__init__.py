"""Acts on what core/ decides: the tasks, timers and calls that bring sandboxes up, and end them."""
