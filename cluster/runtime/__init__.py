"""Ray and processes."""
