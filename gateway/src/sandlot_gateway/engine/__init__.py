"""Carries out core/'s decisions: the tasks, timers and calls that bring sandboxes up and end them."""
