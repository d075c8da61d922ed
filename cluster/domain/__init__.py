"""Frozen messages and pure rules; no I/O."""
