"""The web console in a real browser, before a gateway with thousands of live sandboxes."""
