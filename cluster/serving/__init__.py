"""Answers: the predictor and the server around it."""
