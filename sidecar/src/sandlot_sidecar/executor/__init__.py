"""The part of the sidecar in the sandbox's namespaces: processes, mounts, files. It never sees a token."""
