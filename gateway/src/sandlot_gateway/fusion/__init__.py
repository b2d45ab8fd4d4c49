"""SandboxFusion's HTTP API: runs the code of each request in a sandbox of the caller's tenant."""
