"""Checkpoints in a bucket of an object store that speaks S3."""
