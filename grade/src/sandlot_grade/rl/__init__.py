"""A small policy that learns from scratch to write programs, each run in a sandbox: `sandlot demo-rl`."""
