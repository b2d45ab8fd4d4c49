"""Traces: which requests are traced, their spans, and their export. Only `exporter` loads OpenTelemetry."""
