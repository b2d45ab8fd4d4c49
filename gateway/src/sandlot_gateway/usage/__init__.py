"""Accounting: what each tenant and run used, counted once also across restarts."""
