"""Rows: batches, splits by seed, augmentation."""
