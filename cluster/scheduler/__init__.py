"""Decisions: an event in, instructions out; no I/O."""
