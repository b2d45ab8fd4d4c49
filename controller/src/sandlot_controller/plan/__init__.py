"""Decisions: plain functions of the known state and the time."""
