"""The protocol without I/O: parsers, request builders, error mapping and retry policy, for both APIs."""
