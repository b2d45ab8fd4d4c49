"""The half of the sidecar that lives with the sandbox: namespaces, processes, file paths. It never sees a token."""
