"""Vectors and coefficients give a model."""
