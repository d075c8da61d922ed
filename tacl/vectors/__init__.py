"""Task vectors: named tensors, as files."""
