"""Evaluation by addition: tangents, metrics, interference."""
