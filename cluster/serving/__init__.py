"""Answers queries: the predictor and the server around it."""
