"""Classifier heads on the features of a base model."""
