"""The wire without sockets: parsers, request builders, error mapping and retry decisions, shared by both flavours."""
