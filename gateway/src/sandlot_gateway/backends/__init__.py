"""Where sandboxes come from: one protocol, a module for each kind of machine."""
